/** The browser's `CacheStorage`, which jsdom lacks, in memory and with the methods that the pages use. */

type Address = Request | URL | string;

class MemoryCache {
  private readonly responses = new Map<string, Response>();

  /** Stores all responses, or none. */
  async addAll(addresses: readonly Address[]): Promise<void> {
    const added = await Promise.all(
      addresses.map(async (address) => {
        const response = await fetch(absolute(address));
        if (!response.ok) throw new TypeError(`${absolute(address)} responded with ${response.status}`);
        return [absolute(address), response] as const;
      }),
    );
    for (const [url, response] of added) this.responses.set(url, response);
  }

  match(address: Address): Promise<Response | undefined> {
    return Promise.resolve(this.responses.get(absolute(address))?.clone());
  }
}

export class MemoryCaches {
  private readonly byName = new Map<string, MemoryCache>();

  open(name: string): Promise<MemoryCache> {
    const cache = this.byName.get(name) ?? new MemoryCache();
    this.byName.set(name, cache);
    return Promise.resolve(cache);
  }

  keys(): Promise<string[]> {
    return Promise.resolve([...this.byName.keys()]);
  }

  delete(name: string): Promise<boolean> {
    return Promise.resolve(this.byName.delete(name));
  }

  async match(address: Address): Promise<Response | undefined> {
    for (const cache of this.byName.values()) {
      const found = await cache.match(address);
      if (found !== undefined) return found;
    }
    return undefined;
  }
}

function absolute(address: Address): string {
  return new URL(address instanceof Request ? address.url : address, location.origin).href;
}
