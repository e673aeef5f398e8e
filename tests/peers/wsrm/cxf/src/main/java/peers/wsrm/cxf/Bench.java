package peers.wsrm.cxf;

import jakarta.xml.ws.soap.SOAPBinding;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;

import org.apache.cxf.Bus;
import org.apache.cxf.BusFactory;
import org.apache.cxf.frontend.ClientProxy;
import org.apache.cxf.jaxws.JaxWsProxyFactoryBean;
import org.apache.cxf.ws.addressing.WSAddressingFeature;
import org.apache.cxf.ws.rm.RMManager;
import org.apache.cxf.ws.rm.feature.RMFeature;

import peers.wsrm.contract.Json;
import peers.wsrm.contract.Options;
import peers.wsrm.contract.PeerPort;
import peers.wsrm.contract.Progress;

/** How fast it sends: RM 1.1, one-way, no Offer, one sequence and one thread a bus; the clock ends with the last acknowledgement. */
public final class Bench {
    private Bench() { }

    public static void main(String[] args) throws Exception {
        Options o = new Options("cxf bench: messages a second, all acknowledged")
            .add("url", "", "address of the service (required)")
            .add("sequences", "1", "so many at once")
            .add("count", "2000", "messages of each that are timed")
            .add("warm", "500", "messages of each before")
            .add("size", "1024", "characters of each text")
            .parse(args);
        Rm.quiet();
        int sequences = o.num("sequences");
        CyclicBarrier together = new CyclicBarrier(sequences + 1);
        List<Thread> threads = new ArrayList<>();
        List<Throwable> failed = new ArrayList<>();
        for (int i = 0; i < sequences; i++) {
            String prefix = "s" + i;
            threads.add(new Thread(() -> {
                try {
                    one(o, prefix, together);
                } catch (Throwable e) {
                    synchronized (failed) {
                        failed.add(e);
                    }
                    together.reset();
                }
            }));
        }
        threads.forEach(Thread::start);
        together.await(); // all are warm
        long start = System.nanoTime();
        together.await(); // all is acknowledged
        double seconds = (System.nanoTime() - start) / 1e9;
        if (!failed.isEmpty()) {
            throw new IllegalStateException(failed.get(0));
        }
        Json.line("bench", "sequences", sequences, "messages", sequences * o.num("count"), "seconds", seconds,
                "per_second", sequences * o.num("count") / seconds);
        System.exit(0);
    }

    private static void one(Options o, String prefix, CyclicBarrier together) throws Exception {
        Bus bus = BusFactory.newInstance().createBus();
        BusFactory.setThreadDefaultBus(bus);
        JaxWsProxyFactoryBean f = new JaxWsProxyFactoryBean();
        f.setBus(bus);
        f.setServiceClass(PeerPort.class);
        f.setAddress(o.get("url"));
        f.setBindingId(SOAPBinding.SOAP12HTTP_BINDING);
        f.getFeatures().add(new WSAddressingFeature());
        RMFeature feature = Rm.feature(10_000, 0, 1000, true, false);
        Rm.protocol(feature, "1.1", "2005");
        f.getFeatures().add(feature);
        PeerPort port = (PeerPort) f.create();
        ClientProxy.getClient(port).getRequestContext().put(RMManager.WSRM_VERSION_PROPERTY, Rm.rmNs("1.1"));
        RMManager manager = bus.getExtension(RMManager.class);
        send(port, manager, prefix + "w", o.num("warm"), o.num("size"));
        together.await();
        send(port, manager, prefix, o.num("count"), o.num("size"));
        together.await();
    }

    private static void send(PeerPort port, RMManager manager, String prefix, int count, int size) throws InterruptedException {
        for (int n = 1; n <= count; n++) {
            port.submit(Progress.text(prefix, n, size));
        }
        while (!manager.getRetransmissionQueue().isEmpty()) {
            Thread.sleep(1);
        }
    }
}
