"""The waits of SRMPState with the values that Windows uses on a local network, in seconds.

The receiving engine, the sending engine and the options of ``serve`` all take them from here.
"""

from __future__ import annotations

RESEND_TABLE_S = (30.0,) * 3 + (300.0,) * 3 + (1800.0,) * 3 + (21600.0,)
"""SRMPState.ResendTimerTable ([MC-MQSRM] 3.1.3.1, appendix A <16>). The last wait repeats."""
RETRANSMISSION_TIMEOUT_S = 20.0
"""SRMPState.RetransmissionTimeout ([MC-MQSRM] 3.1.3.1, appendix A <25>)."""
