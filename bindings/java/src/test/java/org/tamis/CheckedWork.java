package org.tamis;

import static org.junit.platform.engine.discovery.ClassNameFilter.excludeClassNamePatterns;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectPackage;

import java.io.PrintWriter;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;
import org.junit.platform.launcher.listeners.TestExecutionSummary;

/** The program that {@link ProcessTest} runs: all other tests. */
final class CheckedWork {
    private CheckedWork() {}

    public static void main(String[] arguments) {
        LauncherDiscoveryRequest others = LauncherDiscoveryRequestBuilder.request()
                .selectors(selectPackage("org.tamis"))
                .filters(excludeClassNamePatterns(ProcessTest.class.getName() + ".*"))
                .build();
        SummaryGeneratingListener listener = new SummaryGeneratingListener();
        LauncherFactory.create().execute(others, listener);
        TestExecutionSummary summary = listener.getSummary();
        summary.printFailuresTo(new PrintWriter(System.out, true));
        System.out.println("passed: " + summary.getTestsSucceededCount());
        if (summary.getTotalFailureCount() > 0) {
            System.exit(1);
        }
    }
}
