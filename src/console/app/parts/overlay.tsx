/**
 * A drawer at the side of the page, or a dialog in its middle. When it closes, the focus returns to
 * the element that opened it, or to the content if that element was removed.
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';

interface OverlayProps {
  readonly title: string;
  readonly kind?: 'drawer' | 'dialog';
  readonly close: () => void;
  readonly children: ComponentChildren;
}

export function Overlay({ title, kind = 'dialog', close, children }: OverlayProps) {
  const box = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = box.current;
    const opener = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      // After this render, because the page may replace the opener in the same step.
      setTimeout(() => {
        if (document.activeElement !== document.body) return;
        const isThere = opener instanceof HTMLElement && opener.isConnected;
        (isThere ? opener : document.getElementById('content'))?.focus();
      });
    };
  }, []);
  return (
    <dialog
      ref={box}
      class={kind}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
      onMouseDown={(event) => {
        if (event.target === box.current) close();
      }}
    >
      <div class="inside">
        <header>
          <h2 id={heading}>{title}</h2>
          <button type="button" class="quiet" aria-label="Close" onClick={close}>
            ✕
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
