// One JVM for all our programs around the Java client: their start-up is most of their time.
// Standard input: a program's class and its arguments a line, parted by tabs. Standard output: what it
// prints, then "\1DONE", or "\1FAILED" after the stack trace of what it threw.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

public class Host {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            String verdict = "DONE";
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (InvocationTargetException thrown) {
                thrown.getCause().printStackTrace(System.out);
                verdict = "FAILED";
            }
            System.out.println("\n\1" + verdict);
            System.out.flush();
        }
        System.exit(0);
    }
}
