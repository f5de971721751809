// A group of the Java client whose listener waits for each message, until the process is killed.
// Arguments: name server, topic, group, members, threads of each, ms a message, "orderly" or
// "concurrently". Prints READY when all members have begun.

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

public class SlowGroup {
    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[4]);
        long pause = Long.parseLong(args[5]);
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(args[3]); number++) {
            DefaultMQPushConsumer member = new DefaultMQPushConsumer(args[2]);
            member.setNamesrvAddr(args[0]);
            member.setMqClientApiTimeout(30_000);
            member.setInstanceName("member-" + number);
            member.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            member.setConsumeThreadMin(threads);
            member.setConsumeThreadMax(threads);
            member.subscribe(args[1], "*");
            if (args[6].equals("orderly")) {
                member.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    rest(pause);
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                member.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    rest(pause);
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            member.start();
            members.add(member);
        }
        System.out.println("READY");
        Thread.currentThread().join();
    }

    static void rest(long pause) {
        try {
            Thread.sleep(pause);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }
}
