import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Sends, pulls and administers with accounts, many times in one JVM. Each line of standard input is one task, its words
 * separated by tabs: NAMESRV ACCOUNT SECRET send TOPIC BROKER | pull TOPIC GROUP BROKER | admin WORDS...
 * An empty account signs nothing. Each is answered by one line {"saw": what happened}.
 */
public final class AccessProbe {
    private static int number = 0;

    public static void main(String[] args) throws Exception {
        PrintStream results = System.out;
        interruptSlowShutdowns(Thread.currentThread());
        BufferedReader tasks = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = tasks.readLine(); line != null; line = tasks.readLine()) {
            String[] words = line.split("\t", -1);
            String saw;
            try {
                saw = run(words);
            } catch (Throwable error) {
                saw = String.valueOf(error.getMessage());
            }
            System.setOut(results);
            results.println(Json.line(Bench.facts("saw", saw)));
            results.flush();
        }
        System.exit(0);
    }

    /** A client that shuts down may join a thread that sleeps for up to 3 s: wake it, since each task has a client. */
    private static void interruptSlowShutdowns(Thread main) {
        Thread waker = new Thread(() -> {
            while (true) {
                boolean joins = Arrays.stream(main.getStackTrace()).anyMatch(
                    frame -> frame.getMethodName().equals("shutdown") && frame.getClassName().endsWith("ServiceThread"));
                if (joins) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().startsWith("NettyEventExecut"))
                        .forEach(Thread::interrupt);
                }
                LockSupport.parkNanos(20_000_000);
            }
        });
        waker.setDaemon(true);
        waker.start();
    }

    private static String run(String[] words) throws Exception {
        RPCHook hook = words[1].isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(words[1], words[2]));
        switch (words[3]) {
            case "send":
                return send(words[0], hook, words[4], words[5]);
            case "pull":
                return pull(words[0], hook, words[4], words[5], words[6]);
            default:
                useTools(words[1], words[2]);
                return admin(words[0], hook, Arrays.copyOfRange(words, 4, words.length));
        }
    }

    private static String send(String names, RPCHook hook, String topic, String broker) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PG", hook);
        producer.setNamesrvAddr(names);
        producer.setInstanceName("probe" + number++);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(20000);
        producer.start();
        try {
            Message message = new Message(topic, "body".getBytes(StandardCharsets.UTF_8));
            return producer.send(message, new MessageQueue(topic, broker, 0)).getSendStatus().name();
        } finally {
            producer.shutdown();
        }
    }

    private static String pull(String names, RPCHook hook, String topic, String group, String broker) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group, hook);
        consumer.setNamesrvAddr(names);
        consumer.setInstanceName("probe" + number++);
        consumer.start();
        try {
            return consumer.pull(new MessageQueue(topic, broker, 0), "*", 0, 1, 20000).getPullStatus().name();
        } finally {
            consumer.shutdown();
        }
    }

    /** The account of mqadmin: that of 4.9 reads it from this file, whatever hook it gets. */
    private static void useTools(String account, String secret) throws Exception {
        String text = account.isEmpty() ? "" : "accessKey: " + account + "\nsecretKey: '" + secret + "'\n";
        Files.writeString(Paths.get(System.getProperty("rocketmq.home.dir"), "conf", "tools.yml"), text);
    }

    private static String admin(String names, RPCHook hook, String[] words) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(printed, true, "UTF-8");
        System.setOut(capture);
        System.setErr(capture);
        String[] all = Arrays.copyOf(words, words.length + 2);
        all[words.length] = "-n";
        all[words.length + 1] = names;
        MQAdminStartup.main0(all, hook);
        capture.flush();
        return printed.toString("UTF-8");
    }
}
