"""Another user of this machine, who tries forbidden actions."""

import os
import subprocess
import sys

NOBODY = 65_534
_BECOME_NOBODY = f"""
import os
if os.getuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
    assert os.getuid() == os.geteuid() == {NOBODY}
"""


def run_as_other_user(imports: str, body: str, *arguments: object) -> str:
    """Return the output of a program whose body runs as another user, or as this user if not root.

    Args:
        imports: Run first, as this user, because other users may not read the interpreter's files.
        body: Run as the other user; `sys.argv[1:]` are the arguments.
        arguments: Arguments of the program.
    """
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}\n{_BECOME_NOBODY}\n{body}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=120,
        env={**os.environ, "HOME": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
