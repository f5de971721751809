import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/** One small program around the unmodified Java client; every line it prints is read by the tests. */
public class Roundtrip {
    /** What producers and consumers have as their namespace, given as a first word "namespace=...". */
    static String namespace;

    /** What signs their requests, given as a first word "keys=ACCESS:SECRET". */
    static RPCHook hook;

    public static void main(String[] args) throws Exception {
        namespace = null;
        hook = null;
        if (args[0].startsWith("keys=")) {
            String[] keys = args[0].substring("keys=".length()).split(":");
            hook = new AclClientRPCHook(new SessionCredentials(keys[0], keys[1]));
            args = Arrays.copyOfRange(args, 1, args.length);
        }
        if (args[0].startsWith("namespace=")) {
            namespace = args[0].substring("namespace=".length());
            args = Arrays.copyOfRange(args, 1, args.length);
        }
        String mode = args[0], namesrv = args[1], topic = args[2], group = args[3];
        int count = Integer.parseInt(args[4]);
        switch (mode) {
            case "send" -> send(namesrv, topic, group, count, false, 0);
            case "send-delayed" -> send(namesrv, topic, group, count, false, Integer.parseInt(args[5]));
            case "send-ordered" -> send(namesrv, topic, group, count, true, 0);
            case "send-batch" -> sendBatch(namesrv, topic, group, count);
            case "consume" -> consume(namesrv, topic, group, count, args.length > 5 ? args[5] : "*", false);
            case "consume-retry" -> consume(namesrv, topic, group, count, "*", true);
            case "consume-ordered" -> consumeOrdered(namesrv, topic, group, count);
            default -> throw new IllegalArgumentException(mode);
        }
        System.out.println("END");
    }

    static DefaultMQProducer producer(String namesrv, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, hook);
        producer.setNamesrvAddr(namesrv);
        if (namespace != null) {
            producer.setNamespace(namespace);
        }
        producer.setMqClientApiTimeout(30_000);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    static void send(String namesrv, String topic, String group, int count, boolean ordered, int delayLevel)
        throws Exception {
        DefaultMQProducer producer = producer(namesrv, group);
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, i % 2 == 0 ? "even" : "odd", "k" + i,
                ("java " + i).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("n", String.valueOf(i));
            if (delayLevel > 0) {
                message.setDelayTimeLevel(delayLevel);
            }
            SendResult result = ordered
                ? producer.send(message, new SelectMessageQueueByHash(), "key-" + i % 5)
                : producer.send(message);
            System.out.println("SENT " + result.getSendStatus() + " " + result.getMsgId() + " "
                + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset());
        }
        producer.shutdown();
    }

    static void sendBatch(String namesrv, String topic, String group, int count) throws Exception {
        DefaultMQProducer producer = producer(namesrv, group);
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            batch.add(new Message(topic, "batch", "b" + i, ("java " + i).getBytes(StandardCharsets.UTF_8)));
        }
        SendResult result = producer.send(batch);
        System.out.println("SENT " + result.getSendStatus() + " " + result.getMsgId().split(",").length);
        producer.shutdown();
    }

    static DefaultMQPushConsumer consumer(String namesrv, String topic, String group, String tags) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(namesrv);
        if (namespace != null) {
            consumer.setNamespace(namespace);
        }
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, tags);
        return consumer;
    }

    static void print(MessageExt message) {
        System.out.println("GOT " + message.getQueueId() + " " + message.getQueueOffset() + " "
            + message.getReconsumeTimes() + " " + message.getTags() + " " + message.getKeys() + " "
            + new String(message.getBody(), StandardCharsets.UTF_8));
    }

    static void await(DefaultMQPushConsumer consumer, CountDownLatch left) throws Exception {
        consumer.start();
        boolean done = left.await(90, TimeUnit.SECONDS);
        consumer.shutdown();
        if (!done) {
            System.out.println("MISSING " + left.getCount());
        }
    }

    static void consume(String namesrv, String topic, String group, int count, String tags, boolean retryFirst)
        throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        AtomicInteger refused = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer(namesrv, topic, group, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                if (retryFirst && message.getReconsumeTimes() == 0) {
                    refused.incrementAndGet();
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                print(message);
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        await(consumer, left);
        System.out.println("REFUSED " + refused.get());
    }

    static void consumeOrdered(String namesrv, String topic, String group, int count) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = consumer(namesrv, topic, group, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                print(message);
                left.countDown();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        await(consumer, left);
    }
}
