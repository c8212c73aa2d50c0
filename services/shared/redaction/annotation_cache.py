"""The annotations of the specifications used last, each parsed once."""

from collections import OrderedDict

from contracts.tools.messages import ToolSpec
from services.shared.redaction.nodes import Annotations, read_annotations

MAX_CACHED_SPECS = 1024


class AnnotationCache:
    """The parsed annotations of output schemas."""

    def __init__(self) -> None:
        self._annotations: OrderedDict[str, Annotations] = OrderedDict()

    def of(self, digest: str, spec: ToolSpec) -> Annotations:
        """Return the annotations of a specification."""
        annotations = self._annotations.get(digest)
        if annotations is None:
            annotations = self._annotations[digest] = read_annotations(spec.output_schema)
            if len(self._annotations) > MAX_CACHED_SPECS:
                self._annotations.popitem(last=False)
        return annotations
