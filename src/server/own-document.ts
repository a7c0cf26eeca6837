/** The OpenAPI document of this very server, under the address that callers know it by. */
import { type OpenApiDocument, openApiDocument } from '../http/openapi/openapi.ts';
import type { Route } from '../http/route.ts';
import type { Config } from '../config/config.ts';

export interface OwnDocumentParts {
  readonly config: () => Config;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  readonly basePath: string;
  /** Every route of the server. */
  readonly routes: () => readonly Route[];
}

export class OwnDocument {
  readonly #parts: OwnDocumentParts;
  #listensOn: string | undefined;

  constructor(parts: OwnDocumentParts) {
    this.#parts = parts;
  }

  /** Told where the server listens, `http://host:port`. */
  listens(address: string): void {
    this.#listensOn = address;
  }

  /** What it tells of. */
  get routes(): readonly Route[] {
    return this.#parts.routes();
  }

  openApi(): OpenApiDocument {
    const { config, version, basePath } = this.#parts;
    const { service, publicUrl } = config();
    // With port 0 only the listening server knows its address.
    const origin = publicUrl.endsWith(':0') ? (this.#listensOn ?? publicUrl) : publicUrl;
    return openApiDocument(this.routes, {
      serviceName: service.name,
      title: service.title,
      version,
      publicUrl: origin,
      basePath,
    });
  }
}
