"""Check a proposal for columns: simulate its operations on the columns of the table. It is applied as a whole or not.

Rule 1: an error is `code@path`; all of them are reported, in the order of the operations.
Rule 2: what can be left out is left out with a warning: a key that changes nothing, a sample cell that does not fit.
Rule 3: an existing column is known by its id alone; in a new table, which has no ids yet, by its name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from services.tables import values
from services.tables.errors import Refused
from services.tables.values import Column

ACTIONS = ("add", "modify", "remove", "reorder")
_DISPLAYS = {"tab", "dropdown"}
_MAX_SAMPLE_ROWS, _USUAL_SAMPLE_ROWS = 5, {2, 3}
_NAME_LIMIT = f"a name has at most {values.MAX_NAME_CHARACTERS} characters"


@dataclass
class Checked:
    """What came of a proposal: the columns that the table would have; `samples`: cells by column id."""

    columns: list[Column]
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)


def check(data: Mapping[str, Any], current: Sequence[Column], new_id: Callable[[], str]) -> Checked:
    """Check a proposal. `current`: the table's columns, none for a new table; `new_id`: names a column for good."""
    mode = data.get("mode")
    if mode not in {"create", "update"}:
        return Checked(list(current), ["mode_missing@mode" if mode is None else "mode_invalid@mode"])
    is_new = mode == "create"
    found = _Simulation(Checked([] if is_new else list(current)), is_new, new_id)
    if is_new:
        for name in ("table_name", "table_description"):
            if not isinstance(data.get(name), str) or not data[name].strip(values.BLANKS):
                found.fail(f"{name}_required", name)
    found.carry_out_all(data.get("operations"))
    samples = data.get("sample_rows")
    if is_new:
        _check_samples(found, samples)
    elif samples is not None:
        found.warn("sample_rows_ignored", "sample_rows")
    return found.result


@dataclass
class _Simulation:
    result: Checked
    is_new: bool
    new_id: Callable[[], str]

    def fail(self, code: str, path: str) -> None:
        self.result.errors.append(f"{code}@{path}")

    def warn(self, code: str, path: str) -> None:
        self.result.warnings.append(f"{code}@{path}")

    def carry_out_all(self, operations: Any) -> None:
        if not isinstance(operations, list) or not operations:
            self.fail("operations_missing" if operations is None else "operations_empty", "operations")
            return
        for number, operation in enumerate(operations):
            self.carry_out(operation if isinstance(operation, Mapping) else {}, f"operations[{number}]")
            if len(self.result.columns) > values.MAX_COLUMNS:
                self.fail(
                    "limit_exceeded", f"operations: at most {values.MAX_COLUMNS} columns, not {len(operations):,}"
                )
                return
        if not self.result.columns and not self.result.errors:
            self.fail("no_columns_left", "operations")

    def carry_out(self, operation: Mapping[str, Any], path: str) -> None:
        action = operation.get("action")
        if action not in ACTIONS:
            self.fail("action_unknown", f"{path}.action")
        elif action == "add":
            self._add(operation, path)
        elif self.is_new:
            self.fail("action_not_allowed_in_create", f"{path}.action")
        elif (column := self._column(operation.get("column_id"))) is None:
            self.fail("column_id_unknown", f"{path}.column_id")
        elif action == "modify":
            self._modify(column, operation.get("changes"), f"{path}.changes")
        elif action == "remove":
            self.result.columns.remove(column)
        else:
            self._reorder(column, operation.get("after_column_id"), f"{path}.after_column_id")

    def _column(self, column_id: Any) -> Column | None:
        return next((each for each in self.result.columns if each.column_id == column_id), None)

    def _add(self, operation: Mapping[str, Any], path: str) -> None:
        given = operation.get("column")
        if not isinstance(given, Mapping):
            self.fail("column_missing", f"{path}.column")
            return
        column = self._described(Column(self.new_id(), "", "text"), given, f"{path}.column", whole=True)
        columns, after = self.result.columns, operation.get("after_column_id")
        if after is not None and self.is_new:
            self.warn("anchor_ignored_in_create", f"{path}.after_column_id")
        elif after is not None and (anchor := self._column(after)) is not None:
            columns.insert(columns.index(anchor) + 1, column)
            return
        elif after is not None:
            self.warn("anchor_not_found_appended", f"{path}.after_column_id")
        columns.append(column)

    def _modify(self, column: Column, given: Any, path: str) -> None:
        changes = dict(given) if isinstance(given, Mapping) else {}
        for key in [key for key, value in changes.items() if value is None]:
            self.warn("null_change_ignored", f"{path}.{key}")
            del changes[key]
        if not changes:
            self.fail("changes_empty", path)
            return
        changed = self._described(column, changes, path, whole=False)
        self.result.columns[self.result.columns.index(column)] = changed

    def _reorder(self, column: Column, after: Any, path: str) -> None:
        anchor = self._column(after)
        if after is not None and (anchor is None or anchor is column):
            self.fail("anchor_unknown", path)
            return
        columns = self.result.columns
        columns.remove(column)
        columns.insert(0 if anchor is None else columns.index(anchor) + 1, column)

    def _described(self, column: Column, given: Mapping[str, Any], path: str, *, whole: bool) -> Column:
        """Return the column as `given` describes it: a whole one, or what changes of it."""
        if whole or "name" in given:
            name = given.get("name")
            name = name.strip(values.BLANKS) if isinstance(name, str) else ""
            others = {values.same_name(each.name) for each in self.result.columns if each is not column}
            if not name or "\0" in name or len(name) > values.MAX_NAME_CHARACTERS:
                self.fail("column_name_missing", f"{path}.name" + (f": {_NAME_LIMIT}" if name else ""))
            elif values.same_name(name) in others:
                self.fail("column_name_duplicate", f"{path}.name")
            column = replace(column, name=name)
        kind = given.get("type", None if whole else column.type)
        if kind not in values.TYPES:
            self.fail("column_type_invalid", f"{path}.type")
            return column
        column = replace(column, type=kind, required=given.get("required", column.required) is True)
        column = self._with_options(column, given, path)
        display = given.get("filterDisplay")
        if display is not None and column.type != "select":
            self.warn("filter_display_ignored", f"{path}.filterDisplay")
        elif display is not None and display not in _DISPLAYS:
            self.fail("filter_display_invalid", f"{path}.filterDisplay")
        elif display is not None:
            column = replace(column, filter_display=display)
        return column if column.type == "select" else replace(column, filter_display=None)

    def _with_options(self, column: Column, given: Mapping[str, Any], path: str) -> Column:
        options = given.get("options")
        if column.type != "select":
            if options is not None:
                self.warn("options_ignored", f"{path}.options")
            return replace(column, options=())
        if options is None and column.options:
            return column
        texts = (
            [each.strip(values.BLANKS) for each in options if isinstance(each, str)]
            if isinstance(options, list)
            else []
        )
        if not options:
            self.fail("options_required", f"{path}.options")
        elif (
            len(texts) != len(options)
            or len({values.fold(each) for each in texts}) != len(texts)
            or not all(texts)
            or len(texts) > values.MAX_OPTIONS
            or any(len(each) > values.MAX_NAME_CHARACTERS or "\0" in each for each in texts)
        ):
            self.fail("options_invalid", f"{path}.options")
        return replace(column, options=tuple(texts))


def _check_samples(found: _Simulation, samples: Any) -> None:
    if not isinstance(samples, list) or not samples or not all(isinstance(each, Mapping) for each in samples):
        found.fail("sample_rows_required", "sample_rows")
        return
    if len(samples) > _MAX_SAMPLE_ROWS:
        found.fail("sample_rows_too_many", "sample_rows")
        return
    if len(samples) not in _USUAL_SAMPLE_ROWS:
        found.warn("sample_rows_count", "sample_rows")
    for number, row in enumerate(samples):
        cells: dict[str, Any] = {}
        for name, value in row.items():
            column = values.column_of(found.result.columns, name.strip(values.BLANKS))
            try:
                if column is None:
                    found.warn("sample_row_unknown_column", f"sample_rows[{number}].{name}")
                else:
                    cells[column.column_id] = values.converted(column, value)[0]
            except Refused:
                found.warn("sample_row_bad_value", f"sample_rows[{number}].{name}")
        found.result.samples.append(cells)
