// What versus_clients.py has the Java client do. Arguments: name server, topic, seconds, work, number.
//   threads N: N threads send one message after the other      batches N: N threads send batches of 32
//   consume N: a listener takes all that waits, up to N messages a call (fill the topic before)
//   trips N: N messages a second, from send to listener
// Prints one line of JSON: messages, seconds, p50_ms, p99_ms, cpu_s.

import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public class Clients {
    static final byte[] BODY = new byte[128];
    static final AtomicLong done = new AtomicLong(), serial = new AtomicLong(System.nanoTime());
    static String namesrv, topic;
    static double seconds;

    interface Step { int run() throws Exception; }

    public static void main(String[] args) throws Exception {
        namesrv = args[0];
        topic = args[1];
        seconds = Double.parseDouble(args[2]);
        Arrays.fill(BODY, (byte) 'x');
        int number = Integer.parseInt(args[4]);
        switch (args[3]) {
            case "threads": send(number, 1); break;
            case "batches": send(number, 32); break;
            case "consume": consume(number); break;
            default: trips(number);
        }
        System.exit(0);
    }

    static Message message() {
        return new Message(topic, "TagA", "order-" + serial.incrementAndGet(), BODY);
    }

    static DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("versus");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000); // a JVM that begins on busy cores needs more than 3 s
        producer.start();
        producer.send(message());
        return producer;
    }

    static void send(int threads, int size) throws Exception {
        DefaultMQProducer producer = producer();
        Step step = () -> {
            if (size == 1) {
                producer.send(message());
                return 1;
            }
            List<Message> batch = new ArrayList<>(size);
            for (int each = 0; each < size; each++) batch.add(message());
            producer.send(batch);
            return size;
        };
        for (int each = 0; each < threads; each++) {
            Thread thread = new Thread(() -> {
                try {
                    while (true) done.addAndGet(step.run());
                } catch (Exception problem) {
                    problem.printStackTrace();
                    System.exit(1);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
        Thread.sleep(5_000); // the JIT compiles what runs often
        measure(() -> Thread.sleep((long) (seconds * 1000)));
    }

    static DefaultMQPushConsumer consumer(int size, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("versus-" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(size);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        return consumer;
    }

    static void consume(int size) throws Exception {
        DefaultMQPushConsumer consumer = consumer(size, (messages, context) -> {
            done.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        while (done.get() == 0) Thread.sleep(10);
        Thread.sleep(2_000);
        measure(() -> Thread.sleep((long) (seconds * 1000)));
    }

    static void trips(int rate) throws Exception {
        DefaultMQProducer producer = producer();
        List<Double> times = new ArrayList<>();
        int warm = 5 * rate, count = warm + (int) (seconds * rate);
        CountDownLatch all = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = consumer(1, (messages, context) -> {
            String sent = messages.get(0).getUserProperty("sent");
            if (sent != null) {
                synchronized (times) {
                    times.add((System.nanoTime() - Long.parseLong(sent)) / 1e6);
                }
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread.sleep(3_000);
        long began = System.nanoTime();
        for (int each = 0; each < count; each++) {
            long due = began + each * 1_000_000_000L / rate;
            for (long left; (left = due - System.nanoTime()) > 0; ) Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
            Message message = message();
            message.putUserProperty("sent", Long.toString(due));
            producer.send(message);
        }
        all.await();
        List<Double> late = new ArrayList<>(times.subList(warm, times.size()));
        late.sort(null);
        System.out.printf("{\"messages\":%d,\"seconds\":%f,\"p50_ms\":%f,\"p99_ms\":%f,\"cpu_s\":0}%n", late.size(),
            seconds, late.get(late.size() / 2), late.get(late.size() * 99 / 100));
    }

    interface Wait { void run() throws Exception; }

    static void measure(Wait wait) throws Exception {
        com.sun.management.OperatingSystemMXBean system =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long began = System.nanoTime(), count = done.get(), cpu = system.getProcessCpuTime();
        wait.run();
        double took = (System.nanoTime() - began) / 1e9;
        System.out.printf("{\"messages\":%d,\"seconds\":%f,\"p50_ms\":0,\"p99_ms\":0,\"cpu_s\":%f}%n",
            done.get() - count, took, (system.getProcessCpuTime() - cpu) / 1e9);
    }
}
