// One run of everything the Java client asks of a broker, for the recording proxy to listen to.
// Prints "SAID name result" per step, then END.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class Scenario {
    static String namesrv;
    static final String TOPIC = "Scenario";

    interface Step {
        Object run() throws Exception;
    }

    static void say(String name, Step step) {
        String result;
        try {
            result = String.valueOf(step.run());
        } catch (Throwable problem) {
            result = problem.getClass().getSimpleName();
        }
        System.out.println("SAID " + name + ": " + result);
        System.out.flush();
    }

    static Message message(String topic, String tag, String key, String body) {
        return new Message(topic, tag, key, body.getBytes(StandardCharsets.UTF_8));
    }

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        DefaultMQProducer producer = new DefaultMQProducer("scenario-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(30_000);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        say("create topic", () -> {
            producer.createTopic("TBW102", TOPIC, 4, Collections.emptyMap());
            return "done";
        });
        Thread.sleep(1_500);
        SendResult sent = send(producer);
        Thread.sleep(1_000);
        ask(producer, sent);
        push();
        orderly();
        pull();
        lite();
        filtered();
        transactions();
        reply(producer);
        producer.shutdown();
        System.out.println("END");
    }

    static SendResult send(DefaultMQProducer producer) throws Exception {
        SendResult first = producer.send(message(TOPIC, "A", "k1", "one"));
        say("send", first::getSendStatus);
        say("send by hash", () -> producer.send(message(TOPIC, "B", "k2", "two"), new SelectMessageQueueByHash(), "s").getSendStatus());
        say("send to a new topic", () -> producer.send(message("ScenarioNew", "A", "k", "new")).getSendStatus());
        say("send one-way", () -> {
            producer.sendOneway(message(TOPIC, "A", "k3", "three"));
            return "done";
        });
        CountDownLatch answered = new CountDownLatch(1);
        producer.send(message(TOPIC, "A", "k4", "four"), new SendCallback() {
            public void onSuccess(SendResult result) {
                answered.countDown();
            }

            public void onException(Throwable problem) {
            }
        });
        say("send async", () -> answered.await(10, TimeUnit.SECONDS));
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            batch.add(message(TOPIC, "C", "b" + i, "batch " + i));
        }
        say("send batch", () -> producer.send(batch).getMsgId().split(",").length);
        Message later = message(TOPIC, "A", "d1", "delayed");
        later.setDelayTimeLevel(1);
        say("send delayed", () -> producer.send(later).getSendStatus());
        say("send large", () -> producer.send(message(TOPIC, "A", "large", "x".repeat(10_000))).getSendStatus());
        return first;
    }

    static void ask(DefaultMQProducer producer, SendResult sent) throws Exception {
        MessageQueue queue = sent.getMessageQueue();
        say("max offset", () -> producer.maxOffset(queue) > 0);
        say("min offset", () -> producer.minOffset(queue));
        say("search offset", () -> producer.searchOffset(queue, 0));
        say("earliest time", () -> producer.earliestMsgStoreTime(queue) > 0);
        say("view", () -> producer.viewMessage(TOPIC, sent.getMsgId()).getKeys());
        say("query", () -> producer.queryMessage(TOPIC, "k1", 8, 0, System.currentTimeMillis() + 10_000).getMessageList().size());
        say("query nothing", () -> producer.queryMessage(TOPIC, "nobody", 8, 0, System.currentTimeMillis()).getMessageList().size());
        say("route of nothing", () -> producer.fetchPublishMessageQueues("ScenarioNowhere"));
    }

    static void push() throws Exception {
        CountDownLatch left = new CountDownLatch(8);
        CountDownLatch again = new CountDownLatch(1);
        AtomicBoolean refused = new AtomicBoolean();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("scenario-push");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setUseHeartbeatV2(true);
        consumer.setHeartbeatBrokerInterval(2_000);
        consumer.setPollNameServerInterval(1_000);
        consumer.subscribe(TOPIC, "A || B || C");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> left.countDown());
            messages.stream().filter(each -> each.getReconsumeTimes() > 0).forEach(each -> again.countDown());
            if (refused.compareAndSet(false, true)) {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        say("push", () -> left.await(60, TimeUnit.SECONDS));
        say("push again", () -> again.await(60, TimeUnit.SECONDS));
        Thread.sleep(7_000);
        consumer.shutdown();
    }

    static void orderly() throws Exception {
        CountDownLatch left = new CountDownLatch(8);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("scenario-orderly");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(each -> left.countDown());
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        say("orderly", () -> left.await(60, TimeUnit.SECONDS));
        consumer.shutdown();
    }

    static void pull() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("scenario-pull");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(30_000);
        consumer.start();
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(TOPIC).stream()
            .filter(each -> each.getQueueId() == 0).findFirst().get();
        long end = consumer.maxOffset(queue);
        say("pull found", () -> consumer.pull(queue, "*", 0, 32).getPullStatus());
        say("pull no match", () -> consumer.pull(queue, "nothing", 0, 32).getPullStatus());
        say("pull at the end", () -> consumer.pull(queue, "*", end, 32).getPullStatus());
        say("pull beyond", () -> consumer.pull(queue, "*", end + 100, 32).getPullStatus());
        say("pull before", () -> consumer.pull(queue, "*", -1, 32).getPullStatus());
        say("offset", () -> consumer.fetchConsumeOffset(queue, true));
        say("commit", () -> {
            consumer.updateConsumeOffset(queue, 1);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
            Thread.sleep(300);
            return consumer.fetchConsumeOffset(queue, true);
        });
        say("send back", () -> {
            MessageExt found = consumer.pull(queue, "*", 0, 1).getMsgFoundList().get(0);
            consumer.sendMessageBack(found, 1);
            return "done";
        });
        consumer.shutdown();
    }

    static void lite() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("scenario-lite");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(30_000);
        consumer.setAutoCommit(false);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(TOPIC));
        consumer.assign(queues);
        consumer.seekToBegin(queues.get(0));
        say("lite poll", () -> !consumer.poll(10_000).isEmpty());
        say("lite time", () -> consumer.offsetForTimestamp(queues.get(0), 0L));
        say("lite commit", () -> {
            consumer.commit();
            return "done";
        });
        Thread.sleep(500);
        consumer.shutdown();
    }

    static void filtered() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("scenario-sql");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(30_000);
        consumer.subscribe(TOPIC, MessageSelector.bySql("a > 1"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        say("SQL", () -> {
            consumer.start();
            return "started";
        });
        consumer.shutdown();
    }

    static void transactions() throws Exception {
        CountDownLatch checked = new CountDownLatch(1);
        TransactionMQProducer producer = new TransactionMQProducer("scenario-tx");
        producer.setNamesrvAddr(namesrv);
        producer.setMqClientApiTimeout(30_000);
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return (LocalTransactionState) state;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (LocalTransactionState state : LocalTransactionState.values()) {
            say("tx " + state, () -> producer.sendMessageInTransaction(message("ScenarioTx", "T", "t", "tx"), state).getSendStatus());
        }
        say("tx check", () -> checked.await(60, TimeUnit.SECONDS));
        Thread.sleep(500);
        producer.shutdown();
    }

    static void reply(DefaultMQProducer producer) throws Exception {
        DefaultMQProducer answerer = new DefaultMQProducer("scenario-answerer");
        answerer.setNamesrvAddr(namesrv);
        answerer.setMqClientApiTimeout(30_000);
        answerer.start();
        producer.createTopic("TBW102", "ScenarioAsk", 1, Collections.emptyMap());
        Thread.sleep(1_500);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("scenario-reply");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(30_000);
        // The client raises its subscription's version when it gets a queue, and tells brokers at once
        // unless a heartbeat is under way; then its pulls are refused (25) until the next one.
        consumer.setHeartbeatBrokerInterval(2_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullInterval(0);
        CountDownLatch answered = new CountDownLatch(1);
        consumer.subscribe("ScenarioAsk", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                try {
                    answerer.send(MessageUtil.createReplyMessage(each, "answer".getBytes(StandardCharsets.UTF_8)), 5_000);
                } catch (Exception problem) {
                    System.out.println("SAID answer: " + problem.getClass().getSimpleName());
                }
                answered.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread.sleep(3_000);
        say("request", () -> new String(producer.request(message("ScenarioAsk", "Q", "q", "question"), 20_000).getBody(), StandardCharsets.UTF_8));
        // The question may be answered before the broker's word about the answer has come back.
        answered.await(10, TimeUnit.SECONDS);
        consumer.shutdown();
        answerer.shutdown();
    }
}
