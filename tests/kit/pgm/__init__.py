"""A simulated multicast group: a real source, real receivers, a bad network, and an oracle that believes none of them."""
