"""Accept rules on plain integers and floats: what a backend must agree with."""
