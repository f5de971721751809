import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * RocketMQ's own filter over a table. Lines in: "P" and hex of key=value;key=value for a message, "E" and hex of an
 * expression. One line out for each expression: X when it is refused, else one letter a message: T F N (unknown),
 * E (an exception), ? (no truth value).
 */
public class SqlTable {
    static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    static EvaluationContext message(String pairs) {
        Map<String, Object> found = new HashMap<>();
        for (String pair : pairs.split("\u0002")) {
            int at = pair.indexOf('\u0001');
            if (at > 0) {
                found.put(pair.substring(0, at), pair.substring(at + 1));
            }
        }
        return new EvaluationContext() {
            @Override
            public Object get(String name) {
                return found.get(name);
            }

            @Override
            public Map<String, Object> keyValues() {
                return found;
            }
        };
    }

    static String verdicts(String expression, List<EvaluationContext> messages) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(expression);
        } catch (Throwable refused) {
            return "X";
        }
        StringBuilder line = new StringBuilder();
        for (EvaluationContext message : messages) {
            try {
                Object verdict = compiled.evaluate(message);
                line.append(verdict == null ? 'N' : verdict == Boolean.TRUE ? 'T' : verdict == Boolean.FALSE ? 'F' : '?');
            } catch (Throwable none) {
                line.append('E');
            }
        }
        return line.toString();
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        List<EvaluationContext> messages = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String rest = line.substring(1).trim();
            if (line.startsWith("P")) {
                messages.add(message(text(rest)));
            } else {
                out.println(verdicts(text(rest), messages));
            }
        }
        out.flush();
    }
}
