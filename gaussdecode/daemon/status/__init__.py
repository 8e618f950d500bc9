"""What the daemon shows of itself: metrics, status, page, advice."""
