// The camera: a live view, and frames of it as files. Nothing leaves the machine.
import { h, style } from "../ui.js";

style(`
web-cam { display: block; }
web-cam video {
  width: 100%; aspect-ratio: 4/3; object-fit: cover; border-radius: 10px; background: #000;
  display: block;
}
`);

class WebCam extends HTMLElement {
  async start() {
    if (!navigator.mediaDevices) throw new Error("The camera works at 127.0.0.1 or over https only.");
    this.video = h("video", { autoplay: true, muted: true, playsinline: true, "aria-label": "Camera" });
    this.replaceChildren(this.video);
    this.stream = await navigator.mediaDevices.getUserMedia({ video: { width: 640, height: 480 } });
    this.video.srcObject = this.stream;
    await this.video.play();
  }

  // The current frame, as a JPEG file.
  async frame() {
    const { videoWidth: width, videoHeight: height } = this.video;
    if (!width) return null;
    const canvas = h("canvas", { width, height });
    canvas.getContext("2d").drawImage(this.video, 0, 0);
    const blob = await new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.9));
    return new File([blob], `camera-${Date.now()}.jpg`, { type: "image/jpeg" });
  }

  stop() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.stream = null;
    this.replaceChildren();
  }

  disconnectedCallback() {
    this.stop();
  }
}
customElements.define("web-cam", WebCam);
