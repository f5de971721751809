import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Groups that start amid the first sends to their topics PREFIX0, PREFIX1, ...; says what each misses.
 * The sends begin once the broker has been asked for an offset of the topic: ASKED/TOPIC exists then.
 */
public class NewGroups {
    static final int SENDS = 40, PAUSE_MS = 20, STAGGER_MS = 100, ASKED_WITHIN_MS = 120_000;

    public static void main(String[] args) throws Exception {
        String namesrv = args[0], prefix = args[1];
        int groups = Integer.parseInt(args[2]);
        Path asked = Path.of(args[4]);
        DefaultMQProducer producer = new DefaultMQProducer("NewGroupsProducer");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(prefix);
        producer.setMqClientApiTimeout(30_000);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        for (int i = 0; i < groups; i++) {
            producer.fetchPublishMessageQueues(prefix + i); // its route: later sends go out at once
        }
        DefaultMQPushConsumer[] consumers = new DefaultMQPushConsumer[groups];
        CountDownLatch[] left = new CountDownLatch[groups];
        Thread[] threads = new Thread[groups];
        for (int i = 0; i < groups; i++) {
            String topic = prefix + i;
            CountDownLatch missing = left[i] = new CountDownLatch(SENDS);
            DefaultMQPushConsumer consumer = consumers[i] = consumer(namesrv, topic, missing);
            threads[i] = new Thread(() -> startAmidSends(producer, consumer, topic, asked.resolve(topic)));
            threads[i].start();
            TimeUnit.MILLISECONDS.sleep(STAGGER_MS);
        }
        for (int i = 0; i < groups; i++) {
            threads[i].join();
        }
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Integer.parseInt(args[3]));
        for (int i = 0; i < groups; i++) {
            if (!left[i].await(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS)) {
                System.out.println("MISSING " + prefix + i + " " + left[i].getCount());
            }
        }
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        producer.shutdown();
        System.out.println("END");
    }

    static DefaultMQPushConsumer consumer(String namesrv, String topic, CountDownLatch left) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("group-" + topic);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(topic);
        consumer.setMqClientApiTimeout(30_000);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, "*");
        Set<Byte> seen = ConcurrentHashMap.newKeySet();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (Message message : messages) {
                if (seen.add(message.getBody()[0])) {
                    left.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    static void startAmidSends(
            DefaultMQProducer producer, DefaultMQPushConsumer consumer, String topic, Path asked) {
        try {
            Thread starter = new Thread(() -> start(consumer));
            starter.start();
            awaitQuestion(topic, asked);
            for (int n = 0; n < SENDS; n++) {
                TimeUnit.MILLISECONDS.sleep(PAUSE_MS);
                producer.send(new Message(topic, new byte[] {(byte) n}));
            }
            starter.join();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }

    static void awaitQuestion(String topic, Path asked) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ASKED_WITHIN_MS);
        while (!Files.exists(asked)) {
            if (System.nanoTime() > end) {
                System.out.println("NOT ASKED " + topic);
                return;
            }
            TimeUnit.MILLISECONDS.sleep(2);
        }
    }

    static void start(DefaultMQPushConsumer consumer) {
        try {
            consumer.start();
        } catch (Exception problem) {
            throw new IllegalStateException(problem);
        }
    }
}
