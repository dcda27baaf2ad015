"""Images of float32 values on the accelerator: quantised in integers (`integers`), by the ALU (`kernel`, `images`)."""
