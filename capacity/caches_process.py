# SPDX-License-Identifier: Apache-2.0
"""The process that drops clean page cache: writes dirty pages out, then writes 1 to the file named.

Ends with 0 or with the errno of what was refused.  A script without imports of ours, started with
`python -I -S`.
"""

import os
import sys

__all__: list[str] = []


def main(path: str) -> int:
    """0, or the errno."""
    os.sync()  # only clean pages can be dropped
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.errno or 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
