/** Current upload speed: bytes per second over the last seconds, smoothed for display. */

const WINDOW_MS = 1_000;
const WEIGHT_OF_NEW = 0.4;

export class Throughput {
  private from: { ms: number; bytes: number } | null = null;
  private bytesPerSecond = 0;

  /** A pause does not count as slow. */
  restart(): void {
    this.from = null;
    this.bytesPerSecond = 0;
  }

  at(ms: number, bytes: number): number {
    if (this.from === null || bytes < this.from.bytes) this.from = { ms, bytes };
    const passed = ms - this.from.ms;
    if (passed >= WINDOW_MS) {
      const now = ((bytes - this.from.bytes) * 1_000) / passed;
      this.bytesPerSecond = this.bytesPerSecond === 0 ? now : WEIGHT_OF_NEW * now + (1 - WEIGHT_OF_NEW) * this.bytesPerSecond;
      this.from = { ms, bytes };
    }
    return this.bytesPerSecond;
  }
}
