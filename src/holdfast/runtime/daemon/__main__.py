"""Process of one worker, as its supervisor starts it:

python -P -m holdfast.runtime.daemon ROLE NAME MODULE:FUNCTION RUNTIME_FOLDER SUPERVISOR_PID
"""

import sys

# structlog loads rich if it can, to draw tracebacks in colour: 60 ms of CPU and 4 MB in each worker, which draws none.
sys.modules["rich"] = None  # type: ignore[assignment]

from holdfast.runtime.daemon.worker import leave, main  # noqa: E402 -- after that

leave(main(sys.argv[1:]))
