/** Destinations of backups: a folder, or a bucket of S3-compatible storage (`s3://bucket/prefix`). */
import { createReadStream, createWriteStream } from 'node:fs';
import { copyFile, mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { assert } from '../../core/assert.ts';
import { DAY_MS, MINUTE_MS } from '../../core/clock.ts';
import { flushFile, flushNames } from '../../core/flush.ts';
import type { Config } from '../../config/config.ts';

type S3Settings = NonNullable<Config['backup']['s3']>;

export interface Destination {
  /** Stores a local file; resolves with its location when it is durable. */
  put(
    file: string,
    name: string,
    onProgress: (done: number, total: number) => void,
  ): Promise<string>;
  names(): Promise<string[]>;
  remove(name: string): Promise<void>;
}

/** Without a limit of the silence, a storage that does not respond would prevent all later backups. */
const MAX_SILENCE_MS = 5 * MINUTE_MS;

/** `to`: an absolute folder or an `s3://` URL. Without `s3` the variables `AWS_…` apply. */
export async function openDestination(
  to: string,
  s3: S3Settings | undefined,
  silenceMs = MAX_SILENCE_MS,
): Promise<Destination> {
  return isS3(to) ? new Bucket(await openBucket(to, s3, silenceMs)) : new Folder(to);
}

export function isS3(location: string): boolean {
  return location.startsWith('s3://');
}

/** Downloads an object, such as `s3://bucket/prefix/name`, to a local file. */
export async function download(
  location: string,
  s3: S3Settings | undefined,
  file: string,
): Promise<void> {
  const { sdk, client, bucket, prefix } = await openBucket(location, s3);
  const { Body } = await client.send(new sdk.GetObjectCommand({ Bucket: bucket, Key: prefix }));
  assert(Body instanceof Readable, 'the body of an object is a stream');
  await pipeline(Body, createWriteStream(file, { mode: 0o600 }));
}

const PART_NAME = /^farebox-\d{8}T\d{9}Z\.tar\.gz(?:\.age)?\.part$/;

class Folder implements Destination {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  async put(file: string, name: string): Promise<string> {
    await mkdir(this.#path, { recursive: true });
    const location = join(this.#path, name);
    const part = `${location}.part`;
    // Before the copy, so that old parts cannot leave too little space for it.
    await writeFile(part, '');
    await this.#removeParts(part);
    await copyFile(file, part);
    await flushFile(part);
    await rename(part, location);
    await flushNames(this.#path);
    return location;
  }

  /** Deletes parts that killed copies have left a day before `part` or earlier. */
  async #removeParts(part: string): Promise<void> {
    const { mtimeMs } = await stat(part);
    for (const name of await this.names()) {
      if (!PART_NAME.test(name)) continue;
      const path = join(this.#path, name);
      if ((await stat(path)).mtimeMs < mtimeMs - DAY_MS) await rm(path, { force: true });
    }
  }

  names(): Promise<string[]> {
    return readdir(this.#path);
  }

  async remove(name: string): Promise<void> {
    await rm(join(this.#path, name));
  }
}

/** The SDK is loaded on first use: it has some hundred modules. */
async function openBucket(
  location: string,
  settings: S3Settings | undefined,
  silenceMs = MAX_SILENCE_MS,
) {
  const sdk = await import('@aws-sdk/client-s3');
  const { host: bucket, pathname } = new URL(location);
  const { endpoint, region, accessKeyId, secretAccessKey } = settings ?? {};
  const credentials =
    accessKeyId !== undefined && secretAccessKey !== undefined
      ? { credentials: { accessKeyId, secretAccessKey } }
      : {};
  const client = new sdk.S3Client({
    ...credentials,
    requestHandler: { connectionTimeout: silenceMs, socketTimeout: silenceMs },
    ...(region === undefined ? {} : { region }),
    // Other storages than Amazon's may not know subdomains of buckets and the newer checksums.
    ...(endpoint === undefined
      ? {}
      : { endpoint, forcePathStyle: true, requestChecksumCalculation: 'WHEN_REQUIRED' as const }),
  });
  return { sdk, client, bucket, prefix: pathname.split('/').filter(Boolean).join('/') };
}

const MIN_PART_BYTES = 8 * 1024 * 1024;
/** S3 allows 10,000. */
const MAX_PARTS = 9_000;

class Bucket implements Destination {
  readonly #opened: Awaited<ReturnType<typeof openBucket>>;

  constructor(opened: Awaited<ReturnType<typeof openBucket>>) {
    this.#opened = opened;
  }

  async put(file: string, name: string, onProgress: (done: number, total: number) => void) {
    const { Upload } = await import('@aws-sdk/lib-storage');
    const { client, bucket } = this.#opened;
    const { size } = await stat(file);
    const upload = new Upload({
      client,
      params: { Bucket: bucket, Key: this.#keyOf(name), Body: createReadStream(file) },
      partSize: Math.max(MIN_PART_BYTES, Math.ceil(size / MAX_PARTS)),
    });
    upload.on('httpUploadProgress', ({ loaded = 0 }) => onProgress(loaded, size));
    await upload.done();
    return `s3://${bucket}/${this.#keyOf(name)}`;
  }

  async names(): Promise<string[]> {
    const { sdk, client, bucket } = this.#opened;
    const folder = this.#keyOf('');
    const names: string[] = [];
    for await (const page of sdk.paginateListObjectsV2(
      { client },
      { Bucket: bucket, Prefix: folder },
    )) {
      for (const { Key = '' } of page.Contents ?? []) names.push(Key.slice(folder.length));
    }
    return names;
  }

  async remove(name: string): Promise<void> {
    const { sdk, client, bucket } = this.#opened;
    await client.send(new sdk.DeleteObjectCommand({ Bucket: bucket, Key: this.#keyOf(name) }));
  }

  #keyOf(name: string): string {
    const { prefix } = this.#opened;
    return prefix === '' ? name : `${prefix}/${name}`;
  }
}
