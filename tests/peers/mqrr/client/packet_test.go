package main

import (
	"encoding/hex"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sample(t *testing.T, name string) []byte {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "data", "msmq", name))
	if err != nil {
		t.Skip(err)
	}
	var s strings.Builder
	for _, l := range strings.Split(string(b), "\n") {
		if !strings.HasPrefix(l, "#") {
			s.WriteString(strings.TrimSpace(l))
		}
	}
	p, err := hex.DecodeString(s.String())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func whole(b []byte) ([][]byte, []section) {
	return [][]byte{b}, []section{{0, len(b), len(b)}}
}

// The printed frame 7 of [MS-MQQB] 4.1.7 and a packet of an independent SRMP builder.
func TestSamples(t *testing.T) {
	m, err := parse(whole(sample(t, "mqqb_f7_usermessage_completed.hex")))
	if err != nil {
		t.Fatal(err)
	}
	if m.PacketSize != 2224 || m.BodyType != 8 || m.SenderID == "" || m.Label == "" || m.SRMP {
		t.Errorf("frame 7: %+v", m)
	}
	m, err = parse(whole(sample(t, "msf_queuejumper_v2_srmp_generated.hex")))
	if err != nil {
		t.Fatal(err)
	}
	if m.PacketSize != 2380 || !m.SRMP || m.EnvelopeChars == 0 || m.BodyLength == 0 {
		t.Errorf("SRMP: %+v", m)
	}
	for _, n := range []string{"mqqb_f3_establish_req.hex", "mqqb_f8_sessionack.hex", "scan_isc_establish_req.hex"} {
		if _, err := parse(whole(sample(t, n))); err == nil {
			t.Errorf("%s is no user message", n)
		}
	}
}

// No input may crash the parser or make it take more than there is.
func TestMutants(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	for _, n := range []string{"mqqb_f7_usermessage_completed.hex", "msf_queuejumper_v2_srmp_generated.hex"} {
		b := sample(t, n)
		for i := 0; i < 3000; i++ {
			c := append([]byte(nil), b[:1+r.Intn(len(b))]...)
			for k := r.Intn(6); k > 0; k-- {
				c[r.Intn(len(c))] = byte(r.Intn(256))
			}
			secs, kinds := whole(c)
			kinds[0].Kind = r.Intn(4)
			kinds[0].Alloc += r.Intn(3000)
			m, err := parse(secs, kinds)
			if err == nil && len(m.body) > len(c) {
				t.Fatal("body larger than the packet")
			}
			if err != nil && strings.Contains(err.Error(), "runtime error") {
				t.Fatalf("%v on %x", err, c[:min(len(c), 80)])
			}
		}
	}
}
