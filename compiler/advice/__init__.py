"""What authors of schedules are told: one sentence for each mistake, with what to write instead."""
