// The parts of a one-node Kubernetes in one program, for tests.
// The first argument names the part: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet or kube-proxy.
// The rest are that part's own flags; etcd takes its data folder and the URL that it listens on.
package main

import (
	"fmt"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// runEtcd serves until it fails. It does not flush to disk: a test's cluster is never needed after a crash.
func runEtcd(folder, client string) error {
	config := embed.NewConfig()
	config.Dir = folder
	clientURL, err := url.Parse(client)
	if err != nil {
		return err
	}
	peerURL, err := url.Parse("http://127.0.0.1:0")
	if err != nil {
		return err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	config.ListenPeerUrls = []url.URL{*peerURL}
	config.LogLevel = "error"
	config.UnsafeNoFsync = true
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	return <-server.Err()
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: node PART [FLAGS]")
		os.Exit(2)
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand() },
		"kube-proxy":              proxy.NewProxyCommand,
	}
	if part == "etcd" && len(os.Args) == 3 {
		fmt.Fprintln(os.Stderr, runEtcd(os.Args[1], os.Args[2]))
		os.Exit(1)
	}
	command, known := commands[part]
	if !known {
		fmt.Fprintln(os.Stderr, "no such part, or wrong arguments:", part)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
