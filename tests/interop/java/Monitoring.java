import java.util.TreeMap;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.tools.monitor.DeleteMsgsEvent;
import org.apache.rocketmq.tools.monitor.FailedMsgs;
import org.apache.rocketmq.tools.monitor.MonitorConfig;
import org.apache.rocketmq.tools.monitor.MonitorListener;
import org.apache.rocketmq.tools.monitor.MonitorService;
import org.apache.rocketmq.tools.monitor.UndoneMsgs;

/** One round of what mqadmin startMonitoring starts; prints what is not done, by group and topic. */
public class Monitoring {
    public static void main(String[] args) throws Exception {
        MonitorConfig config = new MonitorConfig();
        config.setNamesrvAddr(args[0]);
        MonitorService service = new MonitorService(config, new Printed(), null);
        service.start();
        service.doMonitorWork();
        service.shutdown();
    }

    /** Prints what is not done; the rest is of no interest. */
    static class Printed implements MonitorListener {
        @Override
        public void beginRound() {
        }

        @Override
        public void reportUndoneMsgs(UndoneMsgs found) {
            System.out.println("UNDONE " + found.getConsumerGroup() + " " + found.getTopic() + " " + found.getUndoneMsgsTotal());
        }

        @Override
        public void reportFailedMsgs(FailedMsgs found) {
        }

        @Override
        public void reportDeleteMsgsEvent(DeleteMsgsEvent found) {
        }

        @Override
        public void reportConsumerRunningInfo(TreeMap<String, ConsumerRunningInfo> found) {
        }

        @Override
        public void endRound() {
        }
    }
}
