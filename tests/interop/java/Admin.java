// Runs mqadmin's own commands, one after the other in one JVM, while a consumer and a producer are online.
// Standard input: one command a line, its words parted by tabs, after the seconds it may take. Standard
// output: "### n" before what the threads of that command printed; what does not end in its time is left
// to itself, and what it prints from then on is heard no more.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.stats.Stats;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.body.BrokerStatsData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

public class Admin {
    /** Where a command's threads print: each hands it on to those that it starts. */
    static final InheritableThreadLocal<ByteArrayOutputStream> SHEET = new InheritableThreadLocal<>();

    /** Writes to the sheet of the thread that prints; what has no sheet goes nowhere. */
    static final PrintStream PRINTED = new PrintStream(new OutputStream() {
        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int count) {
            ByteArrayOutputStream sheet = SHEET.get();
            if (sheet != null) {
                sheet.write(bytes, from, count);
            }
        }
    }, true, StandardCharsets.UTF_8);

    public static void main(String[] args) {
        PrintStream out = System.out;
        try {
            run(args[0], args[1], out);
        } catch (Throwable problem) { // threads of the clients would keep the JVM
            problem.printStackTrace(out);
            out.flush();
            System.exit(1);
        }
        System.exit(0);
    }

    static void run(String namesrv, String topic, PrintStream out) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("admin-producers");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        producer.setMqClientApiTimeout(30_000);
        producer.start();
        send(producer, topic, 0, 4);
        CountDownLatch left = new CountDownLatch(8);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("admin-group");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000);
        admin.setNamesrvAddr(namesrv);
        admin.start();
        waitForGroup(admin, topic, producer, consumer);
        SendResult sent = send(producer, topic, 4, 8); // counts are reported for one minute
        if (!left.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the consumer did not get its messages");
        }
        count(admin, topic, consumer);
        admin.shutdown();
        String clientId = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(PRINTED);
        System.setErr(PRINTED);
        int n = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.replace("{msgId}", sent.getMsgId()).replace("{offsetMsgId}", sent.getOffsetMsgId())
                .replace("{clientId}", clientId).split("\t");
            if (words[1].equals("brokerStatus") && line.contains("\t-b\t")) {
                awaitFirstMinute(namesrv, words[Arrays.asList(words).indexOf("-b") + 1]);
            }
            out.println("\n### " + n);
            out.print(command(Arrays.copyOfRange(words, 1, words.length), Integer.parseInt(words[0])));
            out.flush();
            n++;
        }
        out.println("\n### END");
        out.flush();
    }

    /** Sends messages to one queue after the other; gives what came of the last. */
    static SendResult send(DefaultMQProducer producer, String topic, int from, int to) throws Exception {
        SendResult sent = null;
        for (int i = from; i < to; i++) {
            Message message = new Message(topic, "tag" + i % 2, "key" + i, ("body " + i).getBytes(StandardCharsets.UTF_8));
            sent = producer.send(message, (queues, m, n) -> queues.get((Integer) n % queues.size()), i);
        }
        return sent;
    }

    /** Waits until broker and clients are where they stay; both clients are hurried, as their timers may take 50 s. */
    static void waitForGroup(DefaultMQAdminExt admin, String topic, DefaultMQProducer producer, DefaultMQPushConsumer consumer)
        throws Exception {
        String group = consumer.getConsumerGroup();
        String retry = MixAll.getRetryTopic(group);
        MQClientInstance client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory();
        Set<MessageQueue> all = new HashSet<>();
        until("the consumer holds every queue of its topic and its retry queue", () -> {
            client.updateTopicRouteInfoFromNameServer(retry);
            all.addAll(consumer.fetchSubscribeMessageQueues(topic));
            all.addAll(consumer.fetchSubscribeMessageQueues(retry));
            client.rebalanceImmediately();
            return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().equals(all);
        });
        until("the broker knows the producer", () -> {
            producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
            return !admin.examineProducerConnectionInfo(producer.getProducerGroup(), topic).getConnectionSet().isEmpty();
        });
        until("the broker has stored the offset of every queue", () -> { // of the empty one after a first long pull
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            ConsumeStats stats = admin.examineConsumeStats(group);
            return stats.getOffsetTable().keySet().equals(all) && stats.computeTotalDiff() == 0;
        });
    }

    /** Waits until all that was sent is consumed and counted. */
    static void count(DefaultMQAdminExt admin, String topic, DefaultMQPushConsumer consumer) throws Exception {
        String group = consumer.getConsumerGroup();
        until("the broker has stored that all is consumed", () -> {
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            return admin.examineConsumeStats(group).computeTotalDiff() == 0;
        });
        String broker = admin.examineTopicRouteInfo(topic).getBrokerDatas().get(0).selectBrokerAddr();
        until("the broker has counted what was sent and what was read", () -> {
            BrokerStatsData sent = admin.viewBrokerStatsData(broker, Stats.TOPIC_PUT_NUMS, topic);
            BrokerStatsData read = admin.viewBrokerStatsData(broker, Stats.GROUP_GET_NUMS, topic + "@" + group);
            return sent.getStatsMinute().getSum() > 0 && read.getStatsMinute().getSum() > 0;
        });
    }

    /** Waits until the broker tells how long sends took: Apache's does once its first minute is over. */
    static void awaitFirstMinute(String namesrv, String broker) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(30_000);
        admin.setNamesrvAddr(namesrv);
        admin.start();
        until("the broker's first minute is over",
            () -> !"null".equals(admin.fetchBrokerRuntimeStats(broker).getTable().get("putMessageDistributeTime")));
        admin.shutdown();
    }

    /** Asks again until it is so, for a minute; what is thrown meanwhile is no answer yet. */
    static void until(String what, Callable<Boolean> isSo) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        Exception last = null;
        while (System.nanoTime() < end) {
            try {
                if (isSo.call()) {
                    return;
                }
            } catch (Exception problem) {
                last = problem;
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException("not within a minute: " + what, last);
    }

    /** What one command printed within its seconds. */
    static String command(String[] words, int seconds) throws InterruptedException {
        ByteArrayOutputStream sheet = new ByteArrayOutputStream();
        Thread command = new Thread(() -> {
            SHEET.set(sheet);
            MQAdminStartup.main0(words, null);
        });
        command.setDaemon(true);
        command.start();
        command.join(seconds * 1_000L);
        boolean ended = !command.isAlive();
        String printed = sheet.toString(StandardCharsets.UTF_8);
        command.interrupt();
        return ended ? printed : printed + "\nDID NOT END\n";
    }
}
