/** Recorded shapes of model providers, as published: one file of data per provider. */
import { readdirSync, readFileSync } from 'node:fs';

export interface ToolCall {
  readonly name: string;
  readonly arguments: string;
}

export interface Provider {
  readonly dialect: string;
  /** Path and query of the engine's URL, if other than `/v1`. */
  readonly url?: string;
  /** Other settings of the engine. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** Reported usages, each with the tokens that are billed. */
  readonly usages?: readonly {
    readonly name: string;
    readonly usage: Readonly<Record<string, unknown>>;
    readonly billed: Readonly<Record<string, unknown>>;
  }[];
  /** Members of the body by which the provider continues a last message; `null` if it does not. */
  readonly prefill?: Readonly<Record<string, unknown>> | null;
  /** A pattern of what the provider rejects in the messages of a request. */
  readonly rejects?: string;
  /** The paths of calls, and the paths and queries that the engine receives. */
  readonly paths?: Readonly<Record<string, string>>;
  readonly errors?: readonly {
    readonly name: string;
    readonly status: number;
    readonly body: unknown;
    /** A key of the table in the test. */
    readonly meaning: string;
  }[];
  /** Requests of callers, and members of the body that the engine receives. */
  readonly requests?: readonly {
    readonly name: string;
    readonly body: Readonly<Record<string, unknown>>;
    readonly sends: Readonly<Record<string, unknown>>;
    readonly omits?: readonly string[];
  }[];
  /** Requests that the engine cannot honour, and the reason that the caller receives. */
  readonly refused?: readonly {
    readonly name: string;
    readonly body: Readonly<Record<string, unknown>>;
    readonly message: string;
  }[];
  /** Streams as sent (a string is a comment), and the completion that the caller receives. */
  readonly chunks?: readonly {
    readonly name: string;
    readonly chunks: readonly unknown[];
    readonly content: string;
    readonly reasoning: string;
    readonly billed: Readonly<Record<string, unknown>>;
  }[];
  /** Data of events by which a stream fails, and the code that the caller receives. */
  readonly streamErrors?: readonly { readonly data: string; readonly code: string }[];
  /** The finish reasons of the provider, each with the reason that the caller receives. */
  readonly finishReasons?: Readonly<Record<string, string>>;
  /** Members of a tool call that the next request has to repeat. */
  readonly callMembers?: Readonly<Record<string, unknown>>;
  readonly embeddings?: ProviderEmbeddings;
  /** The list of models. */
  readonly models?: {
    readonly status?: number;
    readonly pages: readonly unknown[];
    /** Absent if the provider has no list. */
    readonly ids?: readonly string[];
    /** Paths of the requests; default `/v1/models`. */
    readonly paths?: readonly string[];
  };
  readonly streams?: readonly {
    readonly name: string;
    readonly deltas: readonly { readonly tool_calls?: unknown }[];
    readonly calls: readonly ToolCall[];
  }[];
}

/** As the members of `Provider` with the same names, for `POST /embeddings`. */
interface ProviderEmbeddings {
  /** The response of a provider without embeddings. */
  readonly missing?: { readonly status: number; readonly body: unknown };
  readonly path?: string;
  readonly requests?: Provider['requests'];
  readonly refused?: Provider['refused'];
  readonly errors?: Provider['errors'];
  /** Bodies with the vectors and the usage that they contain; `null` if there is no usage. */
  readonly responses?: readonly {
    readonly name: string;
    readonly body: unknown;
    readonly vectors: readonly (readonly number[])[];
    readonly promptTokens: number | null;
  }[];
  /** Values of `encoding_format` that the provider rejects, and its response without the member. */
  readonly rejections?: readonly {
    readonly name: string;
    readonly body: Readonly<Record<string, unknown>>;
    readonly status: number;
    readonly rejection: unknown;
    readonly response: unknown;
  }[];
}

const FOLDER = new URL('../fixtures/providers/', import.meta.url);

export const PROVIDERS = readdirSync(FOLDER).map(
  (file): readonly [name: string, data: Provider] => {
    const data = JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8')) as Provider; // our own file
    return [file.replace('.json', ''), data];
  },
);
