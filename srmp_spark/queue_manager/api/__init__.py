"""The HTTP API of the queue manager (INTERFACE.md section 3): raw ASGI on uvicorn, in the loop of the SRMP port.

``http`` reads requests and writes answers, ``router`` finds the handler, ``guard`` keeps strangers out; one module per
resource holds the handlers. No framework: there are some twenty routes.
"""
