/** Uploads a form with progress, which `fetch` does not report. */
import { ApiError, csrfHeaders, errorOf } from './api.ts';
import { BASE } from './page-facts.ts';

interface UploadOptions {
  readonly signal: AbortSignal;
  /** `share`: the share of the bytes that were sent, 0 to 1. */
  readonly onProgress: (share: number) => void;
}

/** Headers that `errorOf` reads. */
const READ = ['x-request-id', 'retry-after'];

/** Resolves to the JSON of the response. Rejects with `ApiError`, with status 0 after an abort. */
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
    request.addEventListener('abort', fail('ABORTED', 'The upload was cancelled'));
    request.addEventListener('load', () => {
      const headers = new Headers();
      for (const name of READ) {
        const value = request.getResponseHeader(name);
        if (value !== null) headers.set(name, value);
      }
      const { status, statusText } = request;
      const response = new Response(request.responseText, { status, statusText, headers });
      if (response.ok) resolve(response.json() as Promise<T>); // documented by the route
      else errorOf(response).then(reject, reject);
    });
    signal.addEventListener('abort', () => request.abort(), { once: true });
    request.send(form);
  });
}
