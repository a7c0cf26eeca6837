/** A form that is sent while the page says how far it is, which `fetch` does not tell. */
import { ApiError, csrfHeaders, refusalOf } from './api.ts';
import { BASE } from './page-facts.ts';

interface UploadOptions {
  readonly signal: AbortSignal;
  /** Called with the share of the bytes that have left, 0 to 1. */
  readonly onProgress: (share: number) => void;
}

/** Headers of an answer that a refusal is made of. */
const READ = ['x-request-id', 'retry-after'];

/** The JSON that a path below the base answers with. Throws `ApiError`, of status 0 when it was aborted. */
export function upload<T>(path: string, form: FormData, options: UploadOptions): Promise<T> {
  const { signal, onProgress } = options;
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const fail = (code: string, message: string) => () => reject(new ApiError(0, code, message));
    request.open('POST', BASE + path);
    for (const [name, value] of Object.entries(csrfHeaders())) {
      request.setRequestHeader(name, value);
    }
    request.upload.addEventListener('progress', ({ loaded, total }) => onProgress(loaded / total));
    request.addEventListener('error', fail('OFFLINE', 'The server cannot be reached'));
    request.addEventListener('abort', fail('ABORTED', 'The upload was given up'));
    request.addEventListener('load', () => {
      const headers = new Headers();
      for (const name of READ) {
        const value = request.getResponseHeader(name);
        if (value !== null) headers.set(name, value);
      }
      const { status, statusText } = request;
      const answer = new Response(request.responseText, { status, statusText, headers });
      if (answer.ok) resolve(answer.json() as Promise<T>); // as the route promises
      else refusalOf(answer).then(reject, reject);
    });
    signal.addEventListener('abort', () => request.abort(), { once: true });
    request.send(form);
  });
}
