/** How a download is shown: a bar on a terminal, lines elsewhere, nothing in a test. */
import type { DownloadProgress } from './llama/llama.ts';

/** Shows a download to whoever sits at the terminal. */
export interface DownloadView {
  update(progress: DownloadProgress): void;
  end(): void;
}
