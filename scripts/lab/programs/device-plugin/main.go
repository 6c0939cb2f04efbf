// A stand-in for the NVIDIA device plugin, for machines without a GPU: it registers devices that do not exist with the
// real kubelet, as the real plugin does, and takes its orders from files. Used by tests only.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	count     int
	unhealthy string
}

// devices reads the names of lost devices anew each time, so that a test can lose one under a running plugin.
func (p *plugin) devices() []*api.Device {
	text, err := os.ReadFile(p.unhealthy)
	if err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	lost := strings.Fields(string(text))
	devices := make([]*api.Device, p.count)
	for i := range devices {
		id := fmt.Sprintf("GPU-%d", i)
		health := api.Healthy
		if slices.Contains(lost, id) {
			health = api.Unhealthy
		}
		devices[i] = &api.Device{ID: id, Health: health}
	}
	return devices
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	for {
		if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices()}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (p *plugin) Allocate(_ context.Context, requests *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, request := range requests.ContainerRequests {
		visible := map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(request.DevicesIds, ",")}
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{Envs: visible})
	}
	return answer, nil
}

func main() {
	folder := flag.String("folder", "/var/lib/kubelet/device-plugins", "folder of the kubelet's and the plugin's sockets")
	resource := flag.String("resource", "nvidia.com/gpu", "name of the resource")
	count := flag.Int("count", 8, "number of devices")
	unhealthy := flag.String("unhealthy", "", "file with the names of devices that are lost")
	flag.Parse()

	name := "nvidia-gpu.sock"
	socket := filepath.Join(*folder, name)
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{count: *count, unhealthy: *unhealthy})
	stopped := make(chan error)
	go func() { stopped <- server.Serve(listener) }()

	kubelet, err := grpc.NewClient("unix://"+filepath.Join(*folder, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	registration := &api.RegisterRequest{Version: api.Version, Endpoint: name, ResourceName: *resource}
	if _, err := api.NewRegistrationClient(kubelet).Register(context.Background(), registration); err != nil {
		log.Fatal(err)
	}
	log.Fatal(<-stopped)
}
