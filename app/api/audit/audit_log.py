"""Opens the audit log that the settings name. Called by `app.main` before anything is served: what cannot work ends the start."""

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from app.api.audit.log_file import AuditLog, LogFile, StandardOutput
from app.api.audit.policy import DEFAULT, CompiledPolicy, read_policy
from app.settings import Settings, variable
from app.structured_logging import Logger

logger = Logger(__name__)


class AuditSettingError(Exception):
    """Audit cannot work as it is set; the text says what to change."""


class OpenAudit(NamedTuple):
    """The policy, and an open log."""

    policy: CompiledPolicy
    log: AuditLog


def open_audit(settings: Settings, now: Callable[[], datetime]) -> OpenAudit | None:
    """Read the policy and open the log; None if audit is off. Raises AuditSettingError."""
    policy = _read_policy(settings.audit_policy_file)
    if settings.audit_log_path == "none":
        return None
    if settings.audit_log_path == "-":
        return OpenAudit(policy, StandardOutput())
    path = Path(settings.audit_log_path) if settings.audit_log_path else settings.data_dir / "audit" / "audit.log"
    try:
        log = LogFile(
            path,
            max_bytes=settings.audit_log_maxsize << 20,
            max_backups=settings.audit_log_maxbackup,
            max_age=timedelta(days=settings.audit_log_maxage),
            now=now,
        )
    except OSError as error:
        why = error.strerror or str(error)
        raise AuditSettingError(
            f"{variable('audit_log_path')}: cannot write {path}: {why}: pass another path"
        ) from None
    logger.info("writing the audit log", path=str(log.path))
    return OpenAudit(policy, log)


def _read_policy(path: Path | None) -> CompiledPolicy:
    if path is None:
        return read_policy(DEFAULT)
    try:
        return read_policy(path.read_bytes())
    except OSError as error:
        why = f"cannot be read: {error.strerror}: pass another path"
    except ValueError as error:
        why = f"{error}: correct the file"
    raise AuditSettingError(f"{variable('audit_policy_file')}: {path}: {why}")
