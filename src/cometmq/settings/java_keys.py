"""The names of all settings of Apache RocketMQ 5.5.0, broker and name server, sorted.

Data only. A key is in one of three places: `HONOURED` here, which some settings class of ours has;
`NO_EFFECT` here, which changes neither safety, layout nor access, and why; or `UNSUPPORTED` in
`settings/unsupported_keys.py`, which is refused with another value than Apache's default. The
loader warns of `NO_EFFECT` with its reason; docs/operate/settings.md shows it. Names as `mqadmin
getBrokerConfig` and `getNamesrvConfig` list them, and those that are empty there.
"""

from __future__ import annotations

from cometmq.settings.unsupported_keys import UNSUPPORTED

_HONOURED = """
    accessMessageInMemoryMaxRatio aclEnable allowRecallWhenBrokerNotWriteable authConfigPath
    authenticationEnabled authorizationEnabled autoCreateSubscriptionGroup autoCreateTopicEnable
    bindAddress brokerClusterName brokerIP1 brokerIP2 brokerId brokerName brokerPermission
    brokerRole brokerTopicEnable channelExpiredTimeout checkCRCOnRecover cleanFileForciblyEnable
    cleanResourceInterval clusterTopicEnable compressedRegister defaultQueryMaxNum
    defaultTopicQueueNums deleteFileBatchMax deleteTopicWithBrokerRegistration deleteWhen
    diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio
    enableAllTopicList enableMixedMessageType enablePropertyFilter enableTopicList
    enabledAppendPropCRC expectConsumerNumUseFilter fileReservedTime filterDataCleanTimeSpan
    filterSupportRetry flushCommitLogLeastPages flushCommitLogThoroughInterval
    flushConsumeQueueThoroughInterval flushConsumerOffsetInterval flushDelayOffsetInterval
    flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue forceRegister
    haFlowControlEnable haHousekeepingInterval haListenPort haMasterAddress haMaxGapNotInSync
    haSendHeartbeatInterval haTransferBatchSize inSyncReplicas initAuthenticationUser
    innerClientAuthenticationCredentials kvConfigPath listenPort litePullMessageEnable
    longPollingEnable mappedFileSizeCommitLog mappedFileSizeConsumeQueue mappedFileSizeTimerLog
    maxErrorRateOfBloomFilter maxFilterMessageSize maxHaTransferByteInSecond maxHashSlotNum
    maxIndexNum maxMessageSize maxMsgsNumBatch maxTransferBytesOnMessageInDisk
    maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInDisk
    maxTransferCountOnMessageInMemory messageDelayLevel messageIndexEnable metricsExporterType
    metricsLabel metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort
    msgTraceTopicName namesrvAddr needWaitForService notifyConsumerIdsChangedEnable
    notifyMinBrokerIdChanged orderMessageEnable recallMessageEnable regionId
    registerBrokerTimeoutMills registerNameServerPeriod rejectTransactionMessage
    returnOrderTopicConfigToBroker scanNotActiveBrokerInterval serverChannelMaxIdleTimeSeconds
    serverSocketBacklog shortPollingTimeMills slaveReadEnable slaveTimeout storePathCommitLog
    storePathRootDir storeReplyMessageEnable supportActingMaster syncFlushTimeout
    timerCongestNumEachSlot timerFlushIntervalMs timerMaxDelaySec timerPrecisionMs
    timerRollWindowSlot timerWheelEnable traceTopicEnable transactionCheckInterval
    transactionCheckMax transactionTimeOut useServerSideResetOffset useTLS waitSecondsForService
"""

HONOURED = frozenset(_HONOURED.split())
"""Keys that a settings class of ours has, of whichever role."""

_NO_EFFECT: dict[str, str] = {
    "one event loop does the work; no thread pool is sized": """
        ackMessageThreadPoolNums adminBrokerThreadPoolNums asyncSendEnable
        batchDispatchRequestThreadPoolNums brokerFastFailureEnable clientCallbackExecutorThreads
        clientManageThreadPoolNums clientRequestThreadPoolNums clientWorkerThreads
        compactionThreadNum consumerManageThreadPoolNums defaultThreadPoolNums
        disableCallbackExecutor disableNettyWorkerGroup dispatchCqThreads
        enableFastChannelEventProcess endTransactionThreadPoolNums heartbeatThreadPoolNums
        highSpeedMode litePullMessageThreadPoolNums loadBalanceProcessorThreadPoolNums
        popReviveConcurrency processReplyMessageThreadPoolNums pullMessageThreadPoolNums
        putMessageFutureThreadPoolNums queryMessageThreadPoolNums recoverThreadPoolNums
        sendMessageThreadPoolNums serverCallbackExecutorThreads serverNettyWorkerGroupEnable
        serverSelectorThreads serverWorkerThreads timerGetMessageThreadNum timerPutMessageThreadNum
        transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads useEpollNativeSelector
        useSeparateRetryQueue
    """,
    "requests that wait are bounded by inFlightMax and inFlightTotalMax": """
        ackThreadPoolQueueCapacity adminBrokerThreadPoolQueueCapacity
        clientManagerThreadPoolQueueCapacity clientRequestThreadPoolQueueCapacity
        consumerManagerThreadPoolQueueCapacity defaultThreadPoolQueueCapacity
        endTransactionPoolQueueCapacity heartbeatThreadPoolQueueCapacity
        litePullThreadPoolQueueCapacity loadBalanceThreadPoolQueueCapacity
        maxAsyncPutMessageRequests osPageCacheBusyTimeOutMills pullThreadPoolQueueCapacity
        putMessageTimeout putThreadPoolQueueCapacity queryThreadPoolQueueCapacity
        replyThreadPoolQueueCapacity sendThreadPoolQueueCapacity serverAsyncSemaphoreValue
        serverOnewaySemaphoreValue timerReputServiceQueueCapacity
        transactionCheckRocksdbQueueCapacity unRegisterBrokerQueueCapacity waitTimeMillsInAckQueue
        waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
        waitTimeMillsInPullQueue waitTimeMillsInSendQueue waitTimeMillsInTransactionQueue
    """,
    "sockets are asyncio's; frameBytesMax and related settings bound them": """
        clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
        enableNetWorkFlowControl serverPooledByteBufAllocatorEnable serverSocketRcvBufSize
        serverSocketSndBufSize transferMsgByHeap writeBufferHighWaterMark writeBufferLowWaterMark
    """,
    "connections to other servers have bounds of their own": """
        channelNotActiveInterval clientAsyncSemaphoreValue clientChannelMaxIdleTimeSeconds
        clientCloseSocketIfTimeout clientOnewaySemaphoreValue connectTimeoutMillis
        enableReconnectForGoAway forwardTimeout isScanAvailableNameSrv
        maxReconnectIntervalTimeSeconds
    """,
    "a stop always ends what is under way first": """
        enableShutdownGracefully shutdownWaitTimeSeconds
    """,
    "it needs a controller, or a slave that stands in for its master, in RocketMQ too": """
        brokerHeartbeatInterval brokerNotActiveTimeoutMillis cleanOfflineBrokerInterval
        haMaxTimeSlaveNotCatchup maxSlaveResendLength minInSyncReplicas sendHeartbeatTimeoutMillis
        skipPreOnline storePathBrokerIdentity storePathEpochFile syncBrokerMemberGroupPeriod
        syncBrokerMetadataPeriod syncFromLastFile syncMasterFlushOffsetWhenStartup totalReplicas
    """,
    "a broker serves as soon as it has registered": """
        disappearTimeAfterStart
    """,
    "a slave corrects no reader's offset: its master does": """
        offsetCheckInSlave
    """,
    "there is no controller": """
        brokerElectionPriority checkSyncStateSetPeriod controllerAddr controllerDLegerGroup
        controllerDLegerPeers controllerDLegerSelfId controllerHeartBeatTimeoutMills
        controllerStorePath controllerType fetchControllerAddrByDnsLookup
        syncControllerMetadataPeriod
    """,
    "there is no DLedger": """
        dLegerGroup dLegerPeers dLegerSelfId enableBatchPush preferredLeaderId
        storePathDLedgerCommitLog
    """,
    "users and policies are in memory, and every request is looked at": """
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authenticationStrategy
        authorizationStrategy statefulAuthenticationCacheExpiredSecond
        statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum userCacheExpiredSecond userCacheMaxNum
        userCacheRefreshSecond
    """,
    "users and policies come from access.json alone": """
        authenticationMetadataProvider authenticationProvider authorizationMetadataProvider
        authorizationProvider
    """,
    "no request code is exempt from access control": """
        authenticationWhitelist authorizationWhitelist
    """,
    "consumers that take messages by POP are not served": """
        appendAckAsync appendCkAsync clearRetryTopicWhenDeleteTopic defaultPopShareQueueNum
        enableLitePopLog enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
        enablePopBatchAck enablePopBufferMerge enablePopLog enablePopMessageThreshold
        enablePopMetrics enableRetryTopicV2 enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem
        loadBalancePollNameServerInterval maxMessageFilterNumForNotification maxPopPollingSize
        popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
        popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
        popConsumerKVServiceLog popFromRetryProbability popFromRetryProbabilityForPriority
        popInflightMessageThreshold popLongPollingForceNotifyInterval
        popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize
        popResponseReturnActualRetryTopic popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead
        popReviveSkipIfGroupAbsent priorityOrderAsc retrieveMessageFromPopRetryTopicV1
        reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum reviveScanTime
        serverLoadBalancerEnable skipWhenCKRePutReachMaxTimes useMessageFilterForNotification
    """,
    "there are no lite topics and no light message queues": """
        enableLiteEventMode enableLmqQuota enableLmqStats liteEventCheckInterval
        liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
        liteLagCountMetricsEnable liteLagLatencyCollectEnable liteLagLatencyMetricsEnable
        liteLagLatencyTopK liteSubscriptionCheckInterval liteSubscriptionCheckTimeoutMills
        liteTtlCheckInterval maxClientEventCount maxLiteSubscriptionCount maxLmqConsumeQueueNum
        minLiteTTl
    """,
    "timers are taken in and delivered on the broker's loop, without threads of their own": """
        appendTopicForTimerDeleteKey timerCheckMetricsWhen timerColdDataCheckIntervalMs
        timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess
        timerMetricSmallThreshold timerProgressLogIntervalMs timerRecallToTimelineEnable
        timerRecallToTimeWheelEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize
        timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
        timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
        timerSkipUnknownError timerStopDequeue timerStopEnqueue timerWarmEnable
        timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
    """,
    "nothing is in RocksDB": """
        bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin
        combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
        combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType combineCQUseRocksdbForLmq
        enableRocksDBLog iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays
        memTableFlushIntervalMs persistConsumerOffsetIncrementally realTimePersistRocksDBConfig
        rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
        statRocksDBCQIntervalSec transWriteOriginTransHalfEnable useSeparateStorePathForRocksdbCQ
    """,
    "topics are not compacted; cleanup.policy=COMPACTION is refused": """
        compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
        enableCompaction maxOffsetMapSize
    """,
    "there are no batch queues and no extension files of queues": """
        bitMapLengthConsumeQueueExt enableCalcFilterBitMap mappedFileSizeConsumeQueueExt
        mapperFileSizeBatchConsumeQueue sampleCountThreshold sampleSteps searchBcqByCacheEnable
    """,
    "files are written by system calls and read by mappings that the system pages": """
        cleanSwapedMapInterval commitCommitLogLeastPages commitCommitLogThoroughInterval
        commitIntervalCommitLog commitLogForceSwapMapInterval commitLogSwapMapInterval
        commitLogSwapMapReserveFileNum dataReadAheadEnable fastFailIfNoBufferInStorePool
        flushLeastPagesWhenWarmMapedFile logicQueueForceSwapMapInterval logicQueueSwapMapInterval
        logicQueueSwapMapReserveFileNum mappedFileSwapEnable putConsumeQueueDataByFileChannel
        readUnCommitted sharedByteBufferNum transientStorePoolEnable transientStorePoolSize
        warmMapedFileEnable writeWithoutMmap
    """,
    "the store has one writer and needs no such lock": """
        debugLockEnable spinLockCollisionRetreatOptimalDegree topicQueueLockNum useABSLock
        useReentrantLockWhenPutMessage
    """,
    "flushes are due by flushIntervalCommitLog, flushIntervalConsumeQueue and related settings": """
        consumerOffsetUpdateVersionStep delayOffsetUpdateVersionStep enableRunningFlagsInFlush
        flushCommitLogTimed flushConsumeQueueLeastPages flushConsumerOffsetHistoryInterval
        wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    """,
    "a start reads back from the checkpoint and checks every record that it reads": """
        checkCommitLogOffsetOnRecover commitLogRecoverMaxNum enableAcceleratedRecovery
        enableLogConsumeQueueRepeatedlyBuildWhenRecover maxChecksumRange maxRecoveryCommitlogFiles
        recheckReputOffsetFromCq recoverConcurrently
    """,
    "queue entries follow the log in the same loop": """
        dispatchCqCacheNum dispatchFromSenderThread enableAsyncReput
        enableBuildConsumeQueueConcurrently putMsgIndexHightWater
    """,
    "files go in rounds of cleanResourceInterval, the oldest first": """
        correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
        deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
        destroyMapedFileIntervalForcibly enableCleanExpiredOffset
        logicalDiskSpaceCleanForciblyThreshold maxBatchDeleteFilesNum redeleteHangedFileInterval
    """,
    "messageIndexEnable alone decides about the index": """
        indexFileReadEnable indexFileWriteEnable messageIndexSafe
    """,
    "a pull is bounded by maxTransferCountOnMessageInMemory and related settings": """
        accessMessageInMemoryHotRatio consumerFallbehindThreshold diskFallRecorded
        estimateAccumulation maxConsumeQueueScan pullBatchMaxMessageCount
        travelCqFileNumWhenGetMessage
    """,
    "readThreads read old messages; nobody is throttled for it": """
        cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable
        globalColdReadThreshold usePIDColdCtrStrategy
    """,
    "delayed messages are delivered in order, a level at a time": """
        enableScheduleAsyncDeliver enableScheduleMessageStats scheduleAsyncDeliverMaxPendingLimit
        scheduleAsyncDeliverMaxResendNum2Blocked
    """,
    "transactions end in one write each": """
        transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize
    """,
    "names are of 127 characters at most": """
        autoMessageVersionOnTopicLen maxTopicLength
    """,
    "all metrics are there where metricsExporterType is PROM; none goes to OTLP or a log": """
        accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats commercialBaseCount
        commercialSizePerMsg enableConnectionMetrics enableDetailStat enableLagAndDlqMetrics
        enableMessageStoreMetrics enableRemotingMetrics enableRequestMetrics enableStatsMetrics
        enableTransactionMetrics isolateLogEnable maxStatsIdleTimeInMinutes
        metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
        metricLoggingExporterIntervalInMills metricsExportBatchMaxDataPoints
        metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta printChannelGroups
        printChannelGroupsMinNum
    """,
    "a registration carries the whole table": """
        compatibleWithOldNameSrv enableSingleTopicRegister enableSplitMetadata
        enableSplitRegistration splitMetadataSize splitRegistrationSize
    """,
    "namesrvAddr is read at the start and by updateBrokerConfig": """
        fetchNamesrvAddrInterval updateNameServerAddrPeriod
    """,
    "the broker does it in any case": """
        enableCreateSysGroup enableRegisterProducer realTimeNotifyConsumerChange
        validateSystemTopicWhenUpdateTopic
    """,
    "it belongs to Apache's own installation": """
        brokerConfigPath configStorePath productEnvName rocketmqHome
    """,
    "broadcasting consumers keep their offsets themselves": """
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond enableBroadcastOffsetStore
    """,
    "responses always allow message traces; a client decides whether to send them": """
        traceOn
    """,
    "a subscription lasts as long as some member names it": """
        subscriptionExpiredTimeout
    """,
}

NO_EFFECT = {key: reason for reason, names in _NO_EFFECT.items() for key in names.split()}
"""Why a key has no effect here, by key."""

JAVA_KEYS = HONOURED | NO_EFFECT.keys() | UNSUPPORTED.keys()
