"""The secret of the embedded server, without which its API tells and takes nothing.

Made once for a home, in a file that only its owner can read; it is never printed, logged or a part
of a command.
"""

import secrets
import stat
from pathlib import Path

from prefect_tune.deployments.server_users import private_file

__all__ = ["made_secret", "read_secret", "secret_file"]


def secret_file(folder: Path) -> Path:
    """Return the file of the secret of the server in a folder."""
    return folder / "auth"


def made_secret(folder: Path) -> str:
    """Return the secret for a server that starts; a new one where others could read the old."""
    file = secret_file(folder)
    if not file.exists() or file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        file.unlink(missing_ok=True)
        with private_file(file) as new:
            new.write(f"prefect-tune:{secrets.token_urlsafe(32)}\n")
    return read_secret(folder)


def read_secret(folder: Path) -> str:
    """Return the secret of the server that runs in a folder, as `user:password`."""
    return secret_file(folder).read_text().strip()
