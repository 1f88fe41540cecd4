import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs the real mqadmin many times in one JVM, beside a producer and a consumer that are at work.
 * Usage: AdminRunner NAMESRV BROKER. The first line of standard output tells what was set up; then each line of
 * standard input is one command, its words separated by tabs, and is answered by one line
 * {"output": what it printed, "ms": how long it took}.
 */
public final class AdminRunner {
    private static final int SECONDS_MAX = 60;

    public static void main(String[] args) throws Exception {
        PrintStream results = System.out;
        results.println(Json.line(setUp(args[0], args[1])));
        results.flush();
        ExecutorService worker = Executors.newCachedThreadPool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            results.println(Json.line(run(worker, line.split("\t"))));
            results.flush();
        }
        System.exit(0);
    }

    private static Map<String, Object> run(ExecutorService worker, String[] words) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, "UTF-8");
        System.setOut(capture);
        System.setErr(capture);
        long start = System.currentTimeMillis();
        Future<?> run = worker.submit(() -> MQAdminStartup.main0(words, null));
        try {
            run.get(SECONDS_MAX, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            run.cancel(true);
            capture.println("no answer in " + SECONDS_MAX + " s");
        }
        capture.flush();
        return Bench.facts("output", printed.toString("UTF-8"), "ms", System.currentTimeMillis() - start);
    }

    /** Eight messages in four queues, a group that has consumed them, and both clients still connected. */
    private static Map<String, Object> setUp(String nameServer, String broker) throws Exception {
        Bench bench = new Bench(nameServer, broker, "Admin");
        bench.createTopic(bench.topic, 4);
        DefaultMQProducer producer = new DefaultMQProducer("P_Admin");
        bench.quick(producer).setInstanceName("admin-producer");
        producer.start();
        List<Object> ids = new ArrayList<>();
        List<Object> offsetIds = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            MessageQueue queue = new MessageQueue(bench.topic, "broker-a", i % 4);
            SendResult sent = producer.send(Bench.message(bench.topic, "tag" + i % 2, "admin-key-" + i, "body " + i), queue);
            ids.add(sent.getMsgId());
            offsetIds.add(sent.getOffsetMsgId());
        }
        DefaultMQPushConsumer consumer = bench.pushConsumer();
        consumer.setInstanceName("admin-consumer");
        consumer.subscribe(bench.topic, "*");
        Inbox inbox = new Inbox();
        inbox.listen(consumer);
        consumer.start();
        inbox.awaitSize(8);
        Bench.require("the group's offsets at the broker", () -> bench.committed(bench.topic) == 8);
        Bench.require("the producer at the broker",
            () -> !bench.admin().examineProducerConnectionInfo("P_Admin", bench.topic).getConnectionSet().isEmpty());
        bench.close();
        return Bench.facts("ids", ids, "offsetIds", offsetIds, "consumed", inbox.size());
    }
}
