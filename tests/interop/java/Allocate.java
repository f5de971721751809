import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads cases, "strategy TAB client TAB clients TAB queues", and prints each client's share. */
public class Allocate {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line; (line = in.readLine()) != null; ) {
            String[] part = line.split("\t", -1);
            List<MessageQueue> queues = new ArrayList<>();
            for (String text : part[3].split(",")) {
                String[] field = text.split("/");
                queues.add(new MessageQueue(field[0], field[1], Integer.parseInt(field[2])));
            }
            List<String> clients = Arrays.asList(part[2].split(","));
            StringBuilder out = new StringBuilder("GOT");
            for (MessageQueue queue : strategy(part[0]).allocate("group", part[1], queues, clients)) {
                out.append(' ').append(queue.getTopic()).append('/').append(queue.getBrokerName())
                    .append('/').append(queue.getQueueId());
            }
            System.out.println(out);
        }
        System.out.println("END");
        System.exit(0);
    }

    static AllocateMessageQueueStrategy strategy(String name) {
        switch (name) {
            case "AVG": return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE": return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH": return new AllocateMessageQueueConsistentHash();
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(Arrays.asList("r1", "r2")));
                return rooms;
            default:
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override public String brokerDeployIn(MessageQueue queue) {
                            return queue.getBrokerName().split("@")[0];
                        }

                        @Override public String consumerDeployIn(String client) {
                            return client.split("-")[0];
                        }
                    });
        }
    }
}
