import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Runs scenarios with the real Java client and prints what each of them saw, one line of JSON per scenario.
 * Usage: Scenarios NAMESRV BROKER PREFIX [SCENARIO ...]; without names, all of them. They run beside each other, each
 * with a topic and a group of its own, since most of their time is waiting.
 */
public final class Scenarios {
    private static final int AT_ONCE = 5;
    private static final Map<String, Scenario> ALL = new TreeMap<>();

    interface Scenario {
        Map<String, Object> run(Bench bench) throws Exception;
    }

    static {
        ALL.put("sync", SendScenarios::sync);
        ALL.put("async", SendScenarios::async);
        ALL.put("one_way", SendScenarios::oneWay);
        ALL.put("batch", SendScenarios::batch);
        ALL.put("compressed", SendScenarios::compressed);
        ALL.put("vip_channel", SendScenarios::vipChannel);
        ALL.put("auto_topic", SendScenarios::autoTopic);
        ALL.put("request_reply", SendScenarios::requestReply);
        ALL.put("signed", SendScenarios::signed);
        ALL.put("refusals", SendScenarios::refusals);
        ALL.put("tags", ConsumeScenarios::tags);
        ALL.put("sql92", ConsumeScenarios::sql92);
        ALL.put("orderly", ConsumeScenarios::orderly);
        ALL.put("orderly_take_over", ConsumeScenarios::orderlyTakeOver);
        ALL.put("consume_directly", ConsumeScenarios::consumeDirectly);
        ALL.put("volume", ConsumeScenarios::volume);
        ALL.put("from_last", ConsumeScenarios::fromLast);
        ALL.put("recreated_topic", ConsumeScenarios::recreatedTopic);
        ALL.put("clustering", ConsumeScenarios::clustering);
        ALL.put("broadcasting", ConsumeScenarios::broadcasting);
        ALL.put("lite_pull", ConsumeScenarios::litePull);
        ALL.put("pull", ConsumeScenarios::pull);
        ALL.put("reset_offset", ConsumeScenarios::resetOffset);
        ALL.put("delay_level", BrokerScenarios::delayLevel);
        ALL.put("timer", BrokerScenarios::timer);
        ALL.put("timer_at", BrokerScenarios::timerAt);
        ALL.put("retry", BrokerScenarios::retry);
        ALL.put("dead_letter", BrokerScenarios::deadLetter);
        ALL.put("transaction", BrokerScenarios::transaction);
        ALL.put("query", BrokerScenarios::query);
    }

    public static void main(String[] args) throws Exception {
        List<String> names = new ArrayList<>(Arrays.asList(args).subList(3, args.length));
        if (names.isEmpty()) {
            names.addAll(ALL.keySet());
        }
        try (Bench warmUp = new Bench(args[0], args[1], args[2] + "_warm_up")) {
            warmUp.createTopic(warmUp.topic, 1); // loads the classes before any time is measured
        }
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<?>> running = new ArrayList<>();
        for (String name : names) {
            running.add(pool.submit(() -> report(name, args)));
        }
        for (Future<?> one : running) {
            one.get();
        }
        System.exit(0);
    }

    private static void report(String name, String[] args) {
        long start = System.currentTimeMillis();
        Map<String, Object> line = Bench.facts("scenario", name);
        try (Bench bench = new Bench(args[0], args[1], args[2] + "_" + name)) {
            line.put("saw", ALL.get(name).run(bench));
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            line.put("error", trace.toString());
        }
        line.put("ms", System.currentTimeMillis() - start);
        synchronized (Scenarios.class) {
            System.out.println(Json.line(line));
            System.out.flush();
        }
    }
}
