import java.util.Arrays;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** One command of mqadmin, signed with the two keys that come first, or with none where they are "-". */
public class MqAdmin {
    public static void main(String[] args) {
        RPCHook hook = args[0].equals("-") ? null
            : new AclClientRPCHook(new SessionCredentials(args[0], args[1]));
        MQAdminStartup.main0(Arrays.copyOfRange(args, 2, args.length), hook);
    }
}
