"""mqadmin's commands, run against both brokers, and the shape of what they print."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from interop.side_by_side.reasons import Difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from interop.jvm import JavaHost

TOPIC, GROUP, CLUSTER, BROKER = "AdminTopic", "admin-group", "DefaultCluster", "broker-a"
TIMEOUT_S = 60
ENDLESS_S = 16
"""clusterRT measures until it is stopped, every second after its first ten."""
COMMANDS = tuple(
    line.strip()
    for line in f"""
statsAll -n NAMES
statsAll -n NAMES -a -t {TOPIC}
clusterList -n NAMES
clusterList -n NAMES -m
topicList -n NAMES
topicList -n NAMES -c
topicClusterList -n NAMES -t {TOPIC}
topicRoute -n NAMES -t {TOPIC}
topicRoute -n NAMES -t Nowhere
topicStatus -n NAMES -t {TOPIC}
topicStatus -n NAMES -t Nowhere
updateTopic -n NAMES -c {CLUSTER} -t Made -r 4 -w 4
updateTopic -n NAMES -b BROKER -t MadeHere -r 2 -w 2 -p 6 -o true
updateTopic -n NAMES -b BROKER -t MadeFifo -a +message.type=FIFO
updateTopic -n NAMES -b BROKER -t MadeOdd -a +message.type=ODD
updateTopicList -n NAMES -b BROKER -f FILE:[{{"topicName":"FromList","writeQueueNums":2}}]
updateTopicPerm -n NAMES -b BROKER -t Made -p 4
updateTopicPerm -n NAMES -c {CLUSTER} -t Made -p 6
updateOrderConf -n NAMES -t Made -m put -v {BROKER}:4
updateOrderConf -n NAMES -t Made -m get
updateOrderConf -n NAMES -t Made -m delete
allocateMQ -n NAMES -t {TOPIC} -i 127.0.0.1,127.0.0.2
deleteTopic -n NAMES -c {CLUSTER} -t MadeHere
deleteTopic -n NAMES -c {CLUSTER} -t Nowhere
updateSubGroup -n NAMES -b BROKER -g made-group -r 5
updateSubGroup -n NAMES -c {CLUSTER} -g made-group -r 6 -s true -m true -d true
updateSubGroupList -n NAMES -b BROKER -f FILE:[{{"groupName":"listed-group"}}]
getConsumerConfig -n NAMES -g made-group
getConsumerConfig -n NAMES -g nobody-at-all
setConsumeMode -n NAMES -b BROKER -t {TOPIC} -g made-group -m PULL
setConsumeMode -n NAMES -b BROKER -t {TOPIC} -g made-group -m POP -q 2
deleteSubGroup -n NAMES -b BROKER -g made-group
deleteSubGroup -n NAMES -c {CLUSTER} -g nobody -r true
consumerProgress -n NAMES
consumerProgress -n NAMES -g {GROUP}
consumerProgress -n NAMES -g {GROUP} -t {TOPIC} -s true
consumerProgress -n NAMES -g nobody
consumerStatus -n NAMES -g {GROUP}
consumerStatus -n NAMES -g {GROUP} -i CLIENT
getConsumerStatus -n NAMES -g {GROUP} -t {TOPIC}
consumerStatus -n NAMES -g nobody
consumer -n NAMES
consumer -n NAMES -g {GROUP}
consumerConnection -n NAMES -g {GROUP}
consumerConnection -n NAMES -g nobody
producerConnection -n NAMES -g admin-producers -t {TOPIC}
producerConnection -n NAMES -g nobody -t {TOPIC}
producer -n NAMES -b BROKER
brokerConsumeStats -n NAMES -b BROKER
brokerConsumeStats -n NAMES -b BROKER -o true -l 0
getBrokerConfig -n NAMES -b BROKER
getBrokerConfig -n NAMES -c {CLUSTER}
updateBrokerConfig -n NAMES -b BROKER -k maxTransferCountOnMessageInMemory -v 31
updateBrokerConfig -n NAMES -c {CLUSTER} -k maxTransferCountOnMessageInMemory -v 32
updateBrokerConfig -n NAMES -b BROKER -k brokerConfigPath -v elsewhere
getNamesrvConfig -n NAMES
updateNamesrvConfig -n NAMES -k orderMessageEnable -v true
updateKvConfig -n NAMES -s space -k key -v value
deleteKvConfig -n NAMES -s space -k key
wipeWritePerm -n NAMES -b {BROKER}
addWritePerm -n NAMES -b {BROKER}
cleanExpiredCQ -n NAMES -b BROKER
cleanUnusedTopic -n NAMES -b BROKER
deleteExpiredCommitLog -n NAMES -b BROKER
sendMessage -n NAMES -t {TOPIC} -p body -k sent-key -c sent-tag
sendMessage -n NAMES -t {TOPIC} -p body -b {BROKER} -i 1
sendMsgStatus -n NAMES -b {BROKER} -s 64 -c 2
checkMsgSendRT -n NAMES -t {TOPIC} -a 2 -s 64
clusterRT -n NAMES -c {CLUSTER} -a 2 -s 16 -i 1
queryMsgById -n NAMES -i OFFSET_MSG_ID -t {TOPIC}
queryMsgById -n NAMES -i OFFSET_MSG_ID -t {TOPIC} -g {GROUP} -d CLIENT
queryMsgById -n NAMES -i OFFSET_MSG_ID -t {TOPIC} -s true
queryMsgByKey -n NAMES -t {TOPIC} -k key3
queryMsgByKey -n NAMES -t {TOPIC} -k no-such-key
queryMsgByUniqueKey -n NAMES -t {TOPIC} -i MSG_ID
queryMsgByUniqueKey -n NAMES -t {TOPIC} -i 00000000000000000000000000000000
queryMsgByOffset -n NAMES -t {TOPIC} -b {BROKER} -i 0 -o 0
queryMsgByOffset -n NAMES -t {TOPIC} -b {BROKER} -i 0 -o 9999
printMsg -n NAMES -t {TOPIC} -d true -l 2
printMsgByQueue -n NAMES -t {TOPIC} -a {BROKER} -i 0 -p true -d true
consumeMessage -n NAMES -t {TOPIC} -b {BROKER} -i 0 -o 0 -c 1
queryCq -n NAMES -t {TOPIC} -q 0 -i 0 -c 2 -b BROKER
queryCq -n NAMES -t {TOPIC} -q 0 -i 0 -c 2 -b BROKER -g {GROUP}
resetOffsetByTime -n NAMES -g reset-group -t {TOPIC} -s 0
resetOffsetByTime -n NAMES -g {GROUP} -t {TOPIC} -s now
resetOffsetByTime -n NAMES -g {GROUP} -t {TOPIC} -s -1 -b BROKER -q 0
resetOffsetByTimeOld -n NAMES -g reset-group -t {TOPIC} -s 0 -f true
skipAccumulatedMessage -n NAMES -g {GROUP} -t {TOPIC}
cloneGroupOffset -n NAMES -s {GROUP} -d clone-group -t {TOPIC} -o true
queryMsgTraceById -n NAMES -i MSG_ID
haStatus -n NAMES -b BROKER
getBrokerEpoch -n NAMES -b {BROKER}
getColdDataFlowCtrInfo -n NAMES -b BROKER
exportMetadata -n NAMES -c {CLUSTER} -f FOLDER
exportConfigs -n NAMES -c {CLUSTER} -f FOLDER
exportMetrics -n NAMES -c {CLUSTER} -f FOLDER
listUser -n NAMES -b BROKER
listAcl -n NAMES -b BROKER
createUser -n NAMES -b BROKER -u somebody -p secret -t Normal
consumerProgress -n NAMES -g {GROUP}
topicList -n NAMES
brokerStatus -n NAMES -b BROKER
brokerStatus -n NAMES -c {CLUSTER}
""".splitlines()
    if line.strip()
)
"""In this order: statsAll while the minute lasts in which the messages were counted, and what shows
the consumer before its offsets are reset, which takes its queues from it for a while. Last what
Apache's broker only reports when its first minute is over."""


def run(java: JavaHost, folder: Path, namesrv: str, broker: str) -> dict[str, str]:
    """What each command printed; a command that is there twice gets a number."""
    words = {
        "NAMES": namesrv,
        "BROKER": broker,
        "CLIENT": "{clientId}",
        "MSG_ID": "{msgId}",
        "OFFSET_MSG_ID": "{offsetMsgId}",
        "FOLDER": str(folder / "export"),
    }
    lines = [_line(each, words, folder) for each in COMMANDS]
    done = subprocess.run(
        [*java.command("Admin"), namesrv, TOPIC],
        input="\n".join(lines) + "\n",
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "ROCKETMQ_HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    (folder / "output").write_text(done.stdout)
    assert done.stdout.rstrip().endswith("### END"), done.stdout[-3000:] + done.stderr[-3000:]
    return dict(zip(_names(COMMANDS), _parts(done.stdout), strict=True))


def _line(command: str, words: dict[str, str], folder: Path) -> str:
    timeout_s = ENDLESS_S if command.startswith("clusterRT") else TIMEOUT_S
    words_sent = [_word(word, words, folder) for word in command.split()]
    return "\t".join([str(timeout_s), *words_sent])


def _word(word: str, words: dict[str, str], folder: Path) -> str:
    if word.startswith("FILE:"):
        path = folder / f"{len(list(folder.iterdir()))}.json"
        path.write_text(word[5:])
        return str(path)
    return words.get(word, word)


def _names(commands: Sequence[str]) -> list[str]:
    names: list[str] = []
    for command in commands:
        names.append(command if command not in names else f"{command} (again)")
    return names


def _parts(output: str) -> list[str]:
    return [part.strip("\n") for part in re.split(r"^### (?:\d+|END)$", output, flags=re.M)[1:-1]]


_PLAIN = (
    (re.compile(r"^\s+at .*$|^\s+\.\.\. \d+ more$", re.M), ""),
    (re.compile(r"(CODE: \d+) +DESC: .*"), r"\1 DESC: <words>"),
    (re.compile(r"(\w+Tps\s*:).*"), r"\1 <means of some windows>"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+(?:@[\w#]+|(?::\d+)?)"), "<addr>"),
    (re.compile(r"\b[0-9A-F]{32}(?:[0-9A-F]{24})?\b"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d(?:[,:.]\d{3})?"), "<time>"),
    (re.compile(r"/tmp/\S*"), "<path>"),
    (re.compile(r"@[0-9a-f]+$|Lambda\S+|originalMsgId=[0-9A-F]+", re.M), "<object>"),
    (re.compile(r"(?<!CODE: )(?<!\d)-?\d+(?:\.\d+)?(?:E-?\d+)?"), "<n>"),
    (re.compile(r"[ \t]+"), " "),
)


def shape(output: str) -> list[str]:
    """The lines of an output without what must differ; each once, in order of the alphabet.

    Tables of topics and groups come in the order of a hash there, so order does not count.
    """
    for pattern, instead in _PLAIN:
        output = pattern.sub(instead, output)
    return sorted({line.strip() for line in output.splitlines() if line.strip()})


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, list[Difference]]:
    """Per command, the lines that only one of the two brokers made mqadmin print."""
    found: dict[str, list[Difference]] = {}
    for name, output in theirs.items():
        one, two = set(shape(output)), set(shape(ours[name]))
        found[name] = [
            *(Difference(name, line, "there", "-") for line in sorted(one - two)),
            *(Difference(name, line, "-", "there") for line in sorted(two - one)),
        ]
    return found
