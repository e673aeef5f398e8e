"""The API's HTTP: connections, guard, routes, and long bodies in slices. No handler is here."""
