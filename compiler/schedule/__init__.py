"""Ready schedules: shapes, tile sizes and virtual threads become a `Schedule` for `tilewright.compiler.build`."""
