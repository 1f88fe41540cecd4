import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs the real mqadmin many times in one JVM. Each line of standard input is one command, its words separated by
 * tabs; each line of standard output is {"output": what it printed, "ms": how long it took}.
 */
public final class AdminRunner {
    private static final int SECONDS_MAX = 30;

    public static void main(String[] args) throws Exception {
        PrintStream results = System.out;
        ExecutorService worker = Executors.newCachedThreadPool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(printed, true, "UTF-8");
            System.setOut(capture);
            long start = System.currentTimeMillis();
            Future<?> run = worker.submit(() -> MQAdminStartup.main0(words, null));
            try {
                run.get(SECONDS_MAX, TimeUnit.SECONDS);
            } catch (TimeoutException e) {
                run.cancel(true);
                capture.println("no answer in " + SECONDS_MAX + " s");
            }
            capture.flush();
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("output", printed.toString("UTF-8"));
            result.put("ms", System.currentTimeMillis() - start);
            results.println(Json.line(result));
            results.flush();
        }
        System.exit(0);
    }
}
