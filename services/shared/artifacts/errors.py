"""Errors of artifacts. The store raises them, a fault carries them, and the client raises them again."""

from contracts.wire.faults import Code, Fault


class ArtifactFailed(Exception):
    """Base of all errors of artifacts. `retryable`: the same request may succeed later."""

    code: Code = "internal"
    retryable = False

    def __init__(self, reason: str, *, retryable: bool | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        if retryable is not None:
            self.retryable = retryable

    def fault(self) -> Fault:
        """Return the error as it travels."""
        return Fault(code=self.code, reason=self.reason, retryable=self.retryable)


class ArtifactNotFound(ArtifactFailed):
    """The tenant has no artifact of this id: unknown, expired, deleted and foreign ids are not distinguished."""

    code: Code = "artifact_not_found"

    def __init__(self, reason: str = "no such artifact", *, retryable: bool | None = None) -> None:
        super().__init__(reason, retryable=retryable)


class ArtifactTooLarge(ArtifactFailed):
    """The artifact exceeds a limit of the store or of the caller."""

    code: Code = "artifact_too_large"


class ArtifactInvalid(ArtifactFailed):
    """The request, its name, its type or its digest is invalid; a retry would not help."""

    code: Code = "artifact_invalid"


class StorageUnavailable(ArtifactFailed):
    """The store, its S3 server or NATS does not answer."""

    code: Code = "storage_unavailable"
    retryable = True


_BY_CODE: dict[str, type[ArtifactFailed]] = {
    kind.code: kind
    for kind in (ArtifactFailed, ArtifactNotFound, ArtifactTooLarge, ArtifactInvalid, StorageUnavailable)
}


def failure_of(fault: Fault) -> ArtifactFailed:
    """Return the exception that a fault stands for."""
    return _BY_CODE.get(fault.code, ArtifactFailed)(fault.reason, retryable=fault.retryable)
