"""Send SRMP messages at a steady rate: ``poster.py URL RATE COUNT``.

The first twenty bytes of each body are the time of its creation in microseconds.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
import uuid
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
# A script finds its package only after the line above.
from benchmarks.decode import BOUNDARY, GUID, WINDOWS


def main() -> None:
    url, rate, count = urlsplit(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    guid = str(uuid.UUID(bytes=os.urandom(16), version=4))
    connection = http.client.HTTPConnection(url.hostname or "127.0.0.1", url.port, timeout=30)
    head = {
        "Host": "machine2",
        "Content-Type": f'multipart/related; boundary="{BOUNDARY.decode()}"; type=text/xml',
        "SOAPAction": '"MSMQMessage"',
        "Proxy-Accept": "NonInteractiveClient",
    }
    began = time.time()
    for number in range(1, count + 1):
        time.sleep(max(0.0, began + number / rate - time.time()))
        envelope = (WINDOWS.replace(GUID, guid) % number).encode()
        body = b"%020d" % int(time.time() * 1e6) + b"x" * 1004
        content = b"".join(
            [
                b"--",
                BOUNDARY,
                b"\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: %d\r\n\r\n"
                % len(envelope),
                envelope,
                b"--",
                BOUNDARY,
                b"\r\nContent-Type: application/octet-stream\r\nContent-Length: "
                b"%d\r\nContent-Id: body@" % len(body),
                guid.encode(),
                b"\r\n\r\n",
                body,
                b"--",
                BOUNDARY,
                b"--\r\n",
            ]
        )
        connection.request("POST", "/msmq/private$/simpleq", content, head)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"message {number} was answered {answer.status}")
    connection.close()


if __name__ == "__main__":
    main()
