"""Settings of the disk: file sizes, when bytes are made durable, how much a pull takes, retention.

Names and defaults are Apache RocketMQ's save four: the whole-record checksum is written
(`enabledAppendPropCRC`), queue entries are flushed every 10 s instead of 60 (a start after a crash
reads back less of the log), timers of one moment are bounded, and files are kept open up to a bound
of ours. Invariant: a value that
exists is usable, checked when it is made. Java: MessageStoreConfig.
"""

from __future__ import annotations

from dataclasses import dataclass

from cometmq.settings.keys import at_least, between, check, one_of, setting

ASYNC_FLUSH = "ASYNC_FLUSH"
SYNC_FLUSH = "SYNC_FLUSH"
BATCH_MESSAGES_MOST = 4_500
"""With more, the ids in the answer of a broker with an IPv6 address fill a header (256 KiB)."""
TIMER_SLOTS_MOST = 7 * 86_400 - 60
"""Half of the wheel, less what Apache's broker keeps free."""
_INT_MAX = 2**31 - 1
"""Sizes and numbers of entries are 32 bits on disk, and in Apache's settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How a broker keeps its messages."""

    store_path_commit_log: str = setting(
        "", note="directory of the log; empty: commitlog in storePathRootDir"
    )
    commit_log_file_bytes: int = setting(
        1024**3, java="mappedFileSizeCommitLog", note="size of each file of the log, bytes"
    )
    consume_queue_file_bytes: int = setting(
        6_000_000, java="mappedFileSizeConsumeQueue", note="size of each queue file, bytes"
    )
    flush_disk_type: str = setting(
        ASYNC_FLUSH, note="SYNC_FLUSH answers a send only after its bytes are on disk"
    )
    sync_flush_timeout_ms: int = setting(
        5_000, java="syncFlushTimeout", note="wait for the disk before FLUSH_DISK_TIMEOUT"
    )
    flush_interval_ms: int = setting(
        500, java="flushIntervalCommitLog", note="time between flushes under ASYNC_FLUSH"
    )
    flush_least_pages: int = setting(
        4, java="flushCommitLogLeastPages", note="4 KiB pages that make such a flush worth it"
    )
    flush_thorough_interval_ms: int = setting(
        10_000, java="flushCommitLogThoroughInterval", note="time after which it happens anyway"
    )
    flush_interval_consume_queue_ms: int = setting(
        1_000, java="flushIntervalConsumeQueue", note="time between writes of queue entries"
    )
    flush_consume_queue_thorough_interval_ms: int = setting(
        10_000,
        java="flushConsumeQueueThoroughInterval",
        note="time between their flushes to disk; recovery after a crash reads back so far",
    )
    max_message_bytes: int = setting(
        4 * 1024 * 1024, java="maxMessageSize", note="largest body, bytes", live=True
    )
    batch_messages_max: int = setting(4_096, note="messages of one batch; then MESSAGE_ILLEGAL")
    append_crc: bool = setting(
        default=True, java="enabledAppendPropCRC", note="give each record a checksum of all of it"
    )
    check_crc_on_recover: bool = setting(
        default=True, java="checkCRCOnRecover", note="verify checksums when a store is recovered"
    )
    filter_scan_bytes_max: int = setting(
        16_000,
        java="maxFilterMessageSize",
        note="queue entries looked at by one pull, bytes",
        live=True,
    )
    transfer_bytes_in_memory_max: int = setting(
        262_144,
        java="maxTransferBytesOnMessageInMemory",
        note="bytes of one pull, fresh messages",
        live=True,
    )
    transfer_count_in_memory_max: int = setting(
        32,
        java="maxTransferCountOnMessageInMemory",
        note="messages of one pull, fresh ones",
        live=True,
    )
    transfer_bytes_on_disk_max: int = setting(
        65_536,
        java="maxTransferBytesOnMessageInDisk",
        note="bytes of one pull, old messages",
        live=True,
    )
    transfer_count_on_disk_max: int = setting(
        8, java="maxTransferCountOnMessageInDisk", note="messages of one pull, old ones", live=True
    )
    message_index_enable: bool = setting(
        default=True, note="file messages under their ids, keys and tags, to be found by them"
    )
    max_hash_slot_num: int = setting(5_000_000, note="slots of each index file, 4 bytes each")
    max_index_num: int = setting(20_000_000, note="entries of each index file, 20 bytes each")
    max_query_num: int = setting(
        64, java="maxMsgsNumBatch", note="messages one lookup by key gets at most"
    )
    default_query_max_num: int = setting(
        32, note="messages a lookup by a client's message id gets at most"
    )
    memory_percent: int = setting(
        40, java="accessMessageInMemoryMaxRatio", note="share of RAM of log that counts as fresh"
    )
    unwritten_bytes_max: int = setting(
        64 * 1024 * 1024, note="bytes put and not yet safe above which puts are refused"
    )
    timer_wheel_enable: bool = setting(
        default=True, note="take messages at a time of their own; off: those that wait still come"
    )
    timer_precision_ms: int = setting(
        1_000, note="how finely such times are kept, ms; stays for the life of a store"
    )
    timer_max_delay_s: int = setting(
        259_200, java="timerMaxDelaySec", note="how far ahead a time may be, seconds"
    )
    timer_roll_window_slot: int = setting(
        172_800, note="precisions ahead beyond which a timer is stored again on its way"
    )
    timer_congest_num_each_slot: int = setting(
        5_000_000, note="messages due within one precision; more are refused"
    )
    timer_log_file_bytes: int = setting(
        104_857_600, java="mappedFileSizeTimerLog", note="size of each file of timerlog, bytes"
    )
    timer_flush_interval_ms: int = setting(
        1_000, note="time between writes of how far the timers are"
    )
    read_threads: int = setting(
        4, note="threads that read what is no longer in memory, for consumers far behind"
    )
    open_files_max: int = setting(200, note="store files kept open at once")
    delete_when: str = setting(
        "04", note="hours of day, local, in which old files go: 04;16", live=True
    )
    file_reserved_hours: int = setting(
        72, java="fileReservedTime", note="age at which a file of the log may go, hours", live=True
    )
    delete_file_batch_max: int = setting(10, note="files that go in one round", live=True)
    clean_interval_ms: int = setting(
        10_000, java="cleanResourceInterval", note="time between rounds of cleaning"
    )
    clean_forcibly: bool = setting(
        default=True,
        java="cleanFileForciblyEnable",
        note="a full disk ignores the files' age",
        live=True,
    )
    disk_used_percent_max: int = setting(
        75,
        java="diskMaxUsedSpaceRatio",
        note="disk use that starts cleaning at any hour, percent",
        live=True,
    )
    disk_clean_percent: int = setting(
        85,
        java="diskSpaceCleanForciblyRatio",
        note="disk use at which age is ignored, percent",
        live=True,
    )
    disk_full_percent: int = setting(
        90,
        java="diskSpaceWarningLevelRatio",
        note="disk use at which sends are refused, percent",
        live=True,
    )

    def __post_init__(self) -> None:
        """Check every value."""
        rule = "one directory: a log in several, as in a,b, is not supported"
        check(self, "store_path_commit_log", "," not in self.store_path_commit_log, rule)
        one_of(self, "flush_disk_type", ASYNC_FLUSH, SYNC_FLUSH)
        between(self, 4096, _INT_MAX, "commit_log_file_bytes")
        between(self, 20, _INT_MAX, "consume_queue_file_bytes")
        size = self.consume_queue_file_bytes
        check(self, "consume_queue_file_bytes", size % 20 == 0, "a multiple of 20")
        at_least(self, 1, "sync_flush_timeout_ms", "flush_interval_ms", "flush_least_pages")
        at_least(self, 1, "flush_thorough_interval_ms", "flush_interval_consume_queue_ms")
        at_least(self, 1, "flush_consume_queue_thorough_interval_ms", "max_message_bytes")
        between(self, 1, BATCH_MESSAGES_MOST, "batch_messages_max")
        at_least(self, 20, "filter_scan_bytes_max")
        at_least(self, 1, "transfer_bytes_in_memory_max", "transfer_count_in_memory_max")
        at_least(self, 1, "transfer_bytes_on_disk_max", "transfer_count_on_disk_max")
        at_least(self, 4, "open_files_max")
        between(self, 10, 10_000, "timer_precision_ms")
        at_least(self, 1, "timer_max_delay_s", "timer_congest_num_each_slot")
        between(self, 2, TIMER_SLOTS_MOST, "timer_roll_window_slot")
        between(self, 4_096, _INT_MAX, "timer_log_file_bytes")
        between(self, 100, 60_000, "timer_flush_interval_ms")
        between(self, 1, 64, "read_threads")
        at_least(self, 1, "max_query_num", "default_query_max_num")
        between(self, 1, _INT_MAX, "max_hash_slot_num")
        between(self, 2, _INT_MAX, "max_index_num")
        at_least(self, 1, "unwritten_bytes_max", "delete_file_batch_max", "clean_interval_ms")
        at_least(self, 0, "file_reserved_hours")
        between(self, 0, 100, "memory_percent", "disk_used_percent_max")
        between(self, 1, 100, "disk_clean_percent", "disk_full_percent")
        rule = "hours 00 to 23, separated by ;"
        check(self, "delete_when", all(_is_hour(h) for h in self.delete_when.split(";")), rule)

    @property
    def is_sync_flush(self) -> bool:
        """Whether an answer waits for the disk."""
        return self.flush_disk_type == SYNC_FLUSH

    @property
    def delete_hours(self) -> frozenset[int]:
        """The hours of day in which files that are old enough go."""
        return frozenset(int(hour) for hour in self.delete_when.split(";"))


def _is_hour(text: str) -> bool:
    return text.strip().isdecimal() and int(text) < 24
