/** Messages for screen readers, and short notices in a corner of the page. */
import { signal } from '@preact/signals';
import { ApiError } from '../api.ts';

const spoken = signal('');
const shown = signal<{ readonly text: string; readonly tone: string } | undefined>(undefined);
const SHOWN_MS = 6_000;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Sends a message to screen readers. */
export function announce(text: string): void {
  spoken.value = text;
}

/** Shows a notice for some seconds, and sends it to screen readers. */
export function toast(text: string, tone: 'good' | 'bad' = 'good'): void {
  announce(text);
  shown.value = { text, tone };
  clearTimeout(timer);
  timer = setTimeout(() => (shown.value = undefined), SHOWN_MS);
}

export function toastError(error: unknown): void {
  toast(ApiError.of(error).message, 'bad');
}

export function Announcements() {
  return (
    <>
      <div class="unseen" role="status" aria-live="polite">
        {spoken}
      </div>
      {shown.value !== undefined && (
        <div class={`toast ${shown.value.tone}`} aria-hidden="true">
          {shown.value.text}
        </div>
      )}
    </>
  );
}
