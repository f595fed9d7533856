package org.tamis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.io.TempDir;

/** The script that all bindings answer alike. */
final class ConformanceTest {
    @TempDir
    private Path directory;

    @TestFactory
    Stream<DynamicTest> script() throws IOException {
        List<ConformanceScript.Test> tests = ConformanceScript.tests();
        assertTrue(tests.size() >= 40, tests.size() + " tests: where are the others?");
        return tests.stream().map(test -> DynamicTest.dynamicTest(test.name, () -> {
            long before = Handles.open();
            Path own = directory.resolve(test.name.replaceAll("\\W+", "-"));
            assertTrue(own.toFile().mkdir());
            assertEquals(List.of(), ConformanceMachine.run(own, test.lines));
            assertEquals(before, Handles.open(), "handles are left");
        }));
    }

    @Test
    void wrongAnswersAreNoticed() {
        List<String> answers = List.of(
                "get db \"k\" => \"w\"",
                "get db \"k\" => none",
                "get db \"k\" => error closed",
                "get db \"l\" => any \"extra\"",
                "contains db \"k\" => false",
                "scan db - - => list",
                "scan db - - => list \"k\" \"v\" \"l\" \"w\"",
                "increment db \"n\" 1 => 2",
                "put db \"k\" \"v\" => none",
                "open db \"data\" colour red => error io");
        for (int i = 0; i < answers.size(); i++) {
            Path own = directory.resolve("wrong-" + i);
            assertTrue(own.toFile().mkdir());
            List<String> lines = List.of("test wrong", "open db \"data\"", "put db \"k\" \"v\"", answers.get(i));
            List<ConformanceScript.Line> parsed = ConformanceScript.parsed("here", lines).get(0).lines;
            assertEquals(1, ConformanceMachine.run(own, parsed).size(), answers.get(i));
        }
    }
}
