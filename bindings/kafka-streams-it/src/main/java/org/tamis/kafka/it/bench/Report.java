package org.tamis.kafka.it.bench;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;

import com.sun.management.OperatingSystemMXBean;
import org.tamis.kafka.it.process.Directories;

/** What a child tells its parent: lines {@code RESULT name value} on standard output. */
final class Report {
    /** Begins each line. */
    static final String MARK = "RESULT ";

    private Report() {}

    static void tell(String name, double value) {
        System.out.println(MARK + name + " " + String.format(Locale.ROOT, "%.3f", value));
    }

    /** The processor time of all threads of this process so far, which other programs' load changes less than the time that passes. */
    static long cpuNs() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    /** Memory of this process, and bytes of files. */
    static void tellSizes(String prefix, Path state) throws IOException {
        System.gc();
        tell(prefix + " heap MiB", mebibytes(ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed()));
        tell(prefix + " disk MiB", mebibytes(Directories.bytes(state)));
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            String[] parts = line.split("\\s+");
            switch (parts[0]) {
                case "VmHWM:":
                    tell(prefix + " peak RSS MiB", Long.parseLong(parts[1]) / 1024.0);
                    break;
                case "VmRSS:":
                    tell(prefix + " RSS MiB", Long.parseLong(parts[1]) / 1024.0);
                    break;
                case "RssAnon:":
                    // Without mapped files, which the system takes back when it needs the memory.
                    tell(prefix + " anonymous MiB", Long.parseLong(parts[1]) / 1024.0);
                    break;
                default:
            }
        }
    }

    private static double mebibytes(long bytes) {
        return bytes / (double) (1 << 20);
    }
}
